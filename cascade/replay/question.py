"""What an evaluation is asked."""

from __future__ import annotations

from dataclasses import dataclass

from cascade.metrics import Gain
from cascade.replay.queries import Roles
from cascade.replay.sweep import Metric

__all__ = ["Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the tables. ``price`` is what a pair costs in units of ``metric``.

    ``support_tokens`` is the budget of tokens that an answer reads, None where support is not asked for.
    ``unfinished`` allows tables that lack queries which failed when they were collected.
    """

    roles: Roles
    k: int = 10
    gain: Gain = Gain.LINEAR
    metric: Metric = Metric.NDCG
    price: float = 0.0005
    seed: int = 0
    resamples: int = 2000
    where: tuple[tuple[str, str], ...] = ()
    support_tokens: int | None = None
    unfinished: bool = False
