"""Examine one side that can be called: load it, see how its scores move, and score everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.parity.batches import Jitter, measure_jitter
from cascade.parity.lists import CandidateList
from cascade.parity.scoring import Caller, Scored, score_lists
from cascade.parity.token_ids import TokenReader
from cascade.stages.base import Stage

__all__ = ["Examined", "Live", "Progress", "examine"]

_LEAST_RUNS: Final = 3

Progress = Callable[[str, int, int], None]
"""Told whose queries are scored, how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Live:
    """A stage that is not started. ``read`` gives the ids that a model here reads, None where a server does."""

    stage: Stage
    read: TokenReader | None = None

    @property
    def is_here(self) -> bool:
        """Tell whether the model runs in this process."""
        return self.read is not None


@dataclass(frozen=True, slots=True)
class Examined:
    """What was measured of a side. ``bytes`` is the memory of this process that it took, None where it runs elsewhere."""

    scored: Scored
    jitter: Jitter
    runs: int
    bytes: int | None


async def examine(
    live: Live,
    name: str,
    lists: Sequence[CandidateList],
    *,
    max_length: int,
    runs: int,
    clock: Clock,
    resident: Callable[[], int | None],
    progress: Progress = lambda what, done, total: None,
) -> Examined:
    """Start a stage and measure it; a stage whose equal calls differ is run three times at least.

    Memory is what the process has more of after the last run than before the start, so what another side gave back
    before would hide it: keep both open. Raises ConfigError where it cannot be used or does not answer.
    """
    before = resident()
    await live.stage.start()
    if live.stage.unusable is not None:
        raise ConfigError(f"{name}: its server cannot be used: {live.stage.unusable}")
    caller = Caller(live.stage, name, clock)
    jitter = await measure_jitter(caller.scores, max_length)
    needed = runs if jitter.is_deterministic else max(runs, _LEAST_RUNS)
    done, total = 0, needed * len(lists)

    def advance() -> None:
        nonlocal done
        done += 1
        progress(f"{name} scores", done, total)

    scored = await score_lists(caller, lists, needed, advance)
    after = resident()
    taken = after - before if live.is_here and before is not None and after is not None else None
    return Examined(scored, jitter, needed, taken)
