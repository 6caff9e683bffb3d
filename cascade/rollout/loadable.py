"""Build the stages of a release without starting them: what a start would stumble over before it calls a server."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from cascade.errors import ConfigError, lacks_extra
from cascade.policy.release import EmbeddingStage, OnnxStage, Release, Weights
from cascade.stages.build import build_stages, specs_of
from cascade.stages.engine.workers import worker_pool
from cascade.stages.weights import find_model
from cascade.types import StageName

__all__ = ["check_embedded", "not_loadable", "weights_here"]

_UNSET: Final = "unset"


def not_loadable(release: Release, environment: Mapping[str, str]) -> list[str]:
    """Return why the stages of a release cannot be built here, in a sentence; none where they can.

    A variable of a credential that is not set is left out of it. Weights on a hub are not fetched.
    """
    stages = (release.stages.small, release.stages.large)
    auths = [auth for stage in stages if (auth := getattr(stage, "auth", None)) is not None]
    named = {auth.env: _UNSET for auth in auths if auth.env is not None}
    pool = worker_pool(1)
    try:
        build_stages(release, clock=time.monotonic, pool=pool, environment={**named, **environment})
        check_embedded(release, fetch=False)
    except ConfigError as error:
        return [str(error)]
    finally:
        pool.close()
    return []


def check_embedded(release: Release, *, fetch: bool) -> None:
    """Raise ConfigError where libraries or weights of a stage on this machine are missing or are not as declared.

    ``fetch`` allows getting weights from a hub; without it those are not looked at.
    """
    for name, spec in specs_of(release).items():
        if isinstance(spec, OnnxStage | EmbeddingStage):
            _check_libraries()
            if fetch or spec.weights.hub is None:
                _check_weights(name, spec.weights)


def weights_here(release: Release) -> dict[StageName, dict[str, str]]:
    """Return the digests of the files of weights on this machine, by stage and name.

    Of what is on a hub, or cannot be loaded, nothing is told.
    """
    found: dict[StageName, dict[str, str]] = {}
    for name, spec in specs_of(release).items():
        if isinstance(spec, OnnxStage | EmbeddingStage) and spec.weights.hub is None:
            with suppress(ConfigError):
                found[name] = find_model(spec.weights).digests()
    return found


def _check_weights(name: StageName, weights: Weights) -> None:
    try:
        find_model(weights)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _check_libraries() -> None:
    """Import what embedded stages import when they start."""
    for name in ("onnxruntime", "tokenizers"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise lacks_extra(f"embedded stages need {name}; install", "embedded") from None
