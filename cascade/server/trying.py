"""Activate a release for nobody: every step that a rollout takes before traffic, and then all given back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cascade.rollout.activation import Activation, Asked
from cascade.rollout.bundle import load_bundle
from cascade.rollout.signing import ReleaseKeys
from cascade.server.building import built_service
from cascade.server.settings import Settings

__all__ = ["tried"]


async def tried(
    path: Path,
    keys: Callable[[], ReleaseKeys | None],
    environment: Mapping[str, str] = os.environ,
    *,
    lenient: bool = False,
) -> None:
    """Read, check, load, start, probe and ask a release as an activation does, over the servers that it names.

    Raises Refused with the step and why, and ConfigError where it is no release at all.
    """
    bundle = load_bundle(path, environment)
    async with built_service(Settings(), environment, bundle=bundle) as service:
        activation = Activation(
            environment, service.open_release, clock=time.monotonic, count_fault=service.faults, keys=keys
        )
        await activation.run(Asked(path, bundle.loaded.digest, lenient), lambda release: None)
