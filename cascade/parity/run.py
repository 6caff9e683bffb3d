"""Compare two sides from beginning to end: score what has to be scored, and put everything together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.parity.assemble import Measured, Question, assemble
from cascade.parity.comparison import Comparison
from cascade.parity.contrast import contrast_lists
from cascade.parity.gather import Gathered
from cascade.parity.live import Live, Progress, examine
from cascade.parity.sources import Source
from cascade.parity.spaces import Spaces

__all__ = ["LEAST_QUERIES", "Surroundings", "run_parity"]

LEAST_QUERIES: Final = 10


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run takes from outside: a monotonic clock, the process's memory, and whom to tell how far it is."""

    clock: Clock
    resident: Callable[[], int | None]
    progress: Progress = lambda what, done, total: None


async def run_parity(
    ref: Source | Live,
    cand: Source | Live,
    gathered: Gathered | None,
    spaces: Spaces,
    question: Question,
    around: Surroundings,
) -> Comparison:
    """Score what has to be scored, REF first, and compare; without ``gathered`` the built-in lists are all there is.

    Stages are started here, and closed by the caller. Raises ConfigError.
    """
    if gathered is not None and len(gathered.lists) < LEAST_QUERIES and not question.allow_few:
        raise ConfigError(
            f"only {len(gathered.lists)} queries can be compared, and fewer than {LEAST_QUERIES} say little; "
            "--allow-few goes on"
        )
    built_in = contrast_lists(question.max_length) if isinstance(ref, Live) or isinstance(cand, Live) else ()
    measured = []
    for name, side, table_runs in (
        ("REF", ref, None if gathered is None else gathered.ref),
        ("CAND", cand, None if gathered is None else gathered.cand),
    ):
        if isinstance(side, Source):
            if table_runs is None:
                raise ValueError("a table's scores are gathered before it is compared")
            measured.append(Measured(side, table_runs))
            continue
        examined = await examine(
            side,
            name,
            (*built_in, *(gathered.lists if gathered else ())),
            max_length=question.max_length,
            runs=question.runs,
            clock=around.clock,
            resident=around.resident,
            progress=around.progress,
        )
        measured.append(Measured(side, examined.scored.runs, examined))
    return assemble(measured[0], measured[1], built_in, gathered, spaces, question)
