"""Where ``cascade eval`` replays partitions: ``--workers``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from cascade.errors import ConfigError
from cascade.replay.on_ray import ray_workers
from cascade.replay.runs import Run, in_turn

__all__ = ["workers_of"]


def workers_of(written: str | None) -> AbstractContextManager[Run]:
    """Return the run that ``ray`` or ``ray:N`` names, that of this process for None. Raises ConfigError."""
    if written is None:
        return nullcontext(in_turn)
    name, colon, count = written.partition(":")
    if name != "ray" or (colon and not (count.isdecimal() and int(count))):
        raise ConfigError("--workers: write ray, or ray:N with N local workers")
    return ray_workers(int(count) if colon else None)
