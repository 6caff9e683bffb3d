"""Releases side by side in one sidecar, over stages that are scripted by the model that they declare."""

from __future__ import annotations

from typing import Any, Final

from cascade.policy.release import Release, StageSpec, release_digest
from cascade.rollout.bundle import Bundle
from cascade.server.active import ActiveRelease
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from cascade.types import StageName
from tests.server.sidecar import Sidecar, bundle_of, release_of, sidecar

__all__ = ["Closable", "Models", "another", "bundled", "served", "stage_of"]

TEXTS: Final = ["a kingfisher", "a heron", "the kingfisher dives", "bread"]


class Closable(ScriptedStage):
    """Count how often it was started and closed."""

    __slots__ = ("closed", "started")

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.started = self.closed = 0

    async def start(self) -> None:
        self.started += 1

    async def aclose(self) -> None:
        self.closed += 1


class Models:
    """Make scripted stages, and keep them in the order made; ``scripted`` has what a model is to be like."""

    def __init__(self, **scripted: Any) -> None:
        self.scripted: dict[str, dict[str, Any]] = scripted
        self.made: list[tuple[StageName, str, Closable]] = []

    def build(self, name: StageName, spec: StageSpec) -> Closable:
        """Return the stage of a model."""
        fields = {"score_of": overlap} | self.scripted.get(spec.model.rpartition("/")[2], {})
        stage = Closable(**fields)
        self.made.append((name, spec.model, stage))
        return stage

    def of(self, model: str) -> Closable:
        """Return the stage that was made last of a model."""
        return next(stage for _, made, stage in reversed(self.made) if made.rpartition("/")[2] == model)


def stage_of(model: str, **fields: Any) -> dict[str, Any]:
    """Return a stage as a release writes it."""
    return {"adapter": "tei", "url": "http://upstream.test", "engine": "tei/1.9", "model": f"test/{model}", **fields}


def bundled(name: str = "stable-1", **fields: Any) -> Bundle:
    """Return a release of a small and a large model, loaded; ``fields`` replace its own."""
    stages = {"small": stage_of("small"), "large": stage_of("large")}
    release: Release = release_of(**{"release": name, "stages": stages} | fields)
    return bundle_of(release, digest=release_digest({"release": name}))


def served(models: Models | None = None, *, bundle: Bundle | None = None, **fields: Any) -> Sidecar:
    """Return a sidecar that serves one release."""
    return sidecar(build=(models or Models()).build, bundle=bundle or bundled(), **fields)


async def another(sidecar: Sidecar, name: str = "candidate-1", **fields: Any) -> ActiveRelease:
    """Return one more release of a sidecar, started, which decides for nobody yet."""
    release = sidecar.service.open_release(bundled(name, **fields))
    await release.start()
    return release
