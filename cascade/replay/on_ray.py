"""Replay partitions on Ray: the same function, on as many workers as there are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from cascade.errors import ConfigError, lacks_extra
from cascade.replay.runs import Run

__all__ = ["ray_workers"]

_AHEAD: Final = 2
"""Partitions for each worker that are in flight: one at work, one waiting."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def ray_workers(count: int | None = None) -> Iterator[Run]:
    """Give a run on ``count`` local workers, or without a count on the cluster of RAY_ADDRESS, else on all cores.

    No usage report is sent. Raises ConfigError where Ray is not installed or cannot be started.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it Ray warns of what it will change
    try:
        import ray
    except ImportError:
        raise lacks_extra("--workers ray needs", "ray") from None
    local: dict[str, Any] = {} if count is None else {"num_cpus": count, "address": "local"}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, **local)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--workers ray: it cannot be started: {type(error).__name__}") from None
    try:
        yield _OnRay(ray)
    finally:
        ray.shutdown()


class _OnRay:
    """A run on a Ray that was started. Its workers raise what the function raises."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))

    def __call__(self, function: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        ray = self._ray
        call = ray.remote(num_cpus=1, max_retries=1)(_call)
        shared = ray.put(function)
        flying: deque[Any] = deque()
        for item in items:
            if len(flying) >= self._most:
                yield self._got(flying.popleft())
            flying.append(call.remote(shared, item))
        while flying:
            yield self._got(flying.popleft())

    def _got(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ConfigError):
                raise ConfigError(str(error.cause)) from None
            raise
        except self._ray.exceptions.RayError as error:
            raise ConfigError(f"--workers: a worker was lost: {type(error).__name__}") from None


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)
