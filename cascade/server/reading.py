"""Read the release that settings name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from cascade.errors import ConfigError
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.load import LoadedRelease, default_release_path, load_release
from cascade.rollout.nameable import NameableEnvironment
from cascade.rollout.signing import keys_in
from cascade.rollout.sources.http import HttpSource
from cascade.rollout.store import open_store
from cascade.server.settings import Settings

__all__ = ["nameable", "read_bundle", "read_release"]


def nameable(settings: Settings, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment as settings let a release see it; what they themselves name is kept from it."""
    variable = (settings.cache_redis_url or "").removeprefix("env:")
    files = [value for name in type(settings).model_fields if isinstance(value := getattr(settings, name), Path)]
    if (settings.cache_redis_url or "").startswith("file:"):
        files.append(Path(str(settings.cache_redis_url).removeprefix("file:")))
    return NameableEnvironment(
        environment,
        variables=settings.release_variables,
        files=settings.release_files,
        kept=[variable, *files],
    )


def read_release(settings: Settings, environment: Mapping[str, str] = os.environ) -> LoadedRelease:
    """Load the release that settings name, else the packaged default. Raises ConfigError."""
    with _fetched(settings) as path:
        return load_release(path, nameable(settings, environment))


def read_bundle(settings: Settings, environment: Mapping[str, str] = os.environ) -> Bundle:
    """Load the release that settings name, else the packaged default, with its calibration.

    Raises ConfigError, and where release keys are set for what none of them signed.
    """
    with _fetched(settings) as path:
        return load_bundle(path, nameable(settings, environment), keys_in(settings.release_keys_file)())


@contextmanager
def _fetched(settings: Settings) -> Iterator[Path]:
    """Give where the release lies; one at an address is fetched once, and let go of at the end."""
    place = settings.release or default_release_path()
    if isinstance(place, Path):
        yield place
        return
    with open_store(None, keys_in(settings.release_keys_file)) as store:
        source = HttpSource(place, store, token_file=settings.release_auth_file)
        with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
            desired = thread.submit(lambda: asyncio.run(source.now())).result()
        if desired.path_in_store is None:
            raise ConfigError(desired.fault or "release: there is none at its address")
        yield desired.path_in_store
