"""Starts of a sidecar in whose state folder an earlier process left something."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from cascade.policy.release import release_digest
from cascade.rollout.desk import Desk
from cascade.rollout.history import Entry, Happened, KeptRelease, Remembered, StateFile
from cascade.rollout.store import ReleaseStore
from cascade.server.active import ActiveRelease
from cascade.server.building import built_service, start_stages
from cascade.server.rollout_start import StateWithStore, begun
from cascade.server.rollout_wiring import open_desk
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.status import status
from tests.rollout.desk_fakes import release_data

__all__ = ["GONE", "NO_TOKEN", "LeftState", "events", "passed_over", "serving", "write"]

GONE: Final[dict[str, Any]] = {
    "depth": 5,
    "stages": {"small": {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "/no/such"}}},
}
"""Of a release that loads and does not start: the weights are gone."""
NO_TOKEN: Final[dict[str, Any]] = {
    "depth": 5,
    "stages": {
        "small": {
            "adapter": "tei",
            "url": "http://u.test",
            "model": "m",
            "engine": "tei/1.9",
            "auth": {"env": "CASCADE_GONE"},
        }
    },
}
"""Of a release that loads, and whose stages cannot be built."""


def events(log: io.BytesIO, event: str) -> list[dict[str, Any]]:
    """Return the lines of an event."""
    return [line for line in map(orjson.loads, log.getvalue().splitlines()) if line["event"] == event]


def write(path: Path, name: str, **changes: Any) -> str:
    """Write a release; return its digest."""
    data = release_data(name, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return release_digest(data)


class LeftState:
    """What an earlier process left: releases that decided all traffic, the last of them the stable one."""

    def __init__(self, folder: Path, *, seen: str | None = None) -> None:
        self.store = ReleaseStore(folder / "state" / "releases")
        self._folder = folder
        self._file = StateFile(folder / "state")
        self._keeps = StateWithStore(self._file, self.store)
        self._seen = seen

    def serves(self, name: str, **changes: Any) -> str:
        """Have a release be the stable one; return its digest."""
        path = self._folder / "earlier" / f"{name}.yaml"
        digest = write(path, name, **changes)
        self.store.put(path)
        before = self._file.read() or Remembered(seen=self._seen)
        stable = KeptRelease(release=name, digest=digest, activated_at="t")
        self._keeps.write(before.model_copy(update={"stable": stable}))
        return digest

    def damage(self, digest: str) -> None:
        """Leave bytes in the place of a kept release."""
        path = self.store.path(digest)
        assert path is not None
        path.write_bytes(b"damaged")

    def took(self, what: Happened, name: str, digest: str) -> None:
        """Have something have happened to a release."""
        before = self._file.read()
        assert before is not None
        self._file.write(before.with_entry(Entry(at="t", what=what, release=name, digest=digest)))


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[tuple[Service, Desk[ActiveRelease]]]:
    """Start as ``cascade serve`` does, and give the service and its desk."""
    given = Settings(**{"release": folder / "release.yaml", "state_folder": folder / "state"} | settings)
    async with begun(given, {}) as start, built_service(given, {}, choices=start.choices) as service:
        await start_stages(service)
        async with open_desk(service, given, start, {}) as desk:
            yield service, desk


def passed_over(service: Service) -> list[tuple[str, str]]:
    """Return the releases that a start could not serve, each with the step that failed."""
    return [(one["release"], one["step"]) for one in status(service)["start"]["passed_over"]]
