"""Put what was measured of two sides into one comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.parity.compare import Compared, compare
from cascade.parity.comparison import Comparison, Coverage, SideFacts
from cascade.parity.contrast import Contrast, contrasts
from cascade.parity.gather import Gathered
from cascade.parity.lists import CandidateList, Runs
from cascade.parity.live import Examined, Live
from cascade.parity.pairs import Paired
from cascade.parity.score_space import SpaceCheck, check_space
from cascade.parity.sources import Source
from cascade.parity.spaces import Spaces
from cascade.parity.token_ids import Tokens, compare_counts, compare_ids

__all__ = ["Measured", "Question", "assemble"]

_ELSEWHERE: Final = "it runs in another process"
_NOT_SCORED: Final = "a table: nothing was scored anew"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. ``max_length`` is the window, in tokens, that over-length is counted from."""

    k: int = 10
    runs: int = 1
    max_length: int = 512
    resamples: int = 2000
    seed: int = 0
    allow_few: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A side, the scores that it has of the lists, and where it was scored anew what was seen."""

    side: Source | Live
    runs: Runs
    examined: Examined | None = None


def assemble(
    ref: Measured,
    cand: Measured,
    built_in: Sequence[CandidateList],
    gathered: Gathered | None,
    spaces: Spaces,
    question: Question,
) -> Comparison:
    """Compare two measured sides. Raises ConfigError where they have no pair in common."""
    anew = gathered or Gathered(tuple(built_in), of_queries=len(built_in))
    compared = _compared(anew.lists, ref, cand, spaces, question)
    if not compared.paired.pairs:
        raise ConfigError("no pair was scored by both sides")
    both_anew = ref.examined is not None and cand.examined is not None
    beside = _compared(built_in, ref, cand, spaces, question) if gathered is not None and both_anew else None
    tokens, tokens_reason = _tokens(ref, cand, (*built_in, *(gathered.lists if gathered else ())))
    return Comparison(
        ref=_facts(ref),
        cand=_facts(cand),
        spaces=spaces,
        coverage=_coverage(anew, compared.paired),
        compared=compared,
        space=_space([compared, *([beside] if beside else [])], spaces),
        built_in=beside,
        contrasts=_contrasts(built_in, ref, cand),
        tokens=tokens,
        tokens_reason=tokens_reason,
    )


def _compared(
    lists: Sequence[CandidateList], ref: Measured, cand: Measured, spaces: Spaces, question: Question
) -> Compared:
    return compare(lists, ref.runs, cand.runs, spaces, k=question.k, resamples=question.resamples, seed=question.seed)


def _space(parts: Sequence[Compared], spaces: Spaces) -> SpaceCheck:
    """Check the space on every pair that there is, the built-in ones too: they reach from clear to absurd."""
    lists = [item for part in parts for item in part.paired.lists]
    return check_space(
        np.concatenate([item.ref for item in lists]), np.concatenate([item.cand for item in lists]), spaces
    )


def _coverage(gathered: Gathered, paired: Paired) -> Coverage:
    return Coverage(
        pairs=paired.pairs,
        queries=len(paired.lists),
        only_ref=gathered.only_ref.and_then(paired.only_ref),
        only_cand=gathered.only_cand.and_then(paired.only_cand),
        neither=paired.neither,
        of_queries=gathered.of_queries,
        queries_only_ref=gathered.queries_only_ref,
        queries_only_cand=gathered.queries_only_cand,
        without_candidates=gathered.without_candidates,
    )


def _contrasts(built_in: Sequence[CandidateList], ref: Measured, cand: Measured) -> tuple[Contrast, ...] | None:
    if not built_in:
        return None
    ours, theirs = (side.runs if side.examined is not None else None for side in (ref, cand))
    return tuple(contrasts(built_in, ours, theirs))


def _tokens(ref: Measured, cand: Measured, lists: Sequence[CandidateList]) -> tuple[Tokens | None, str]:
    """Return the comparison of what the sides read, or why there is none."""
    if ref.examined is None or cand.examined is None or isinstance(ref.side, Source) or isinstance(cand.side, Source):
        return None, _NOT_SCORED
    if ref.side.read is not None and cand.side.read is not None:
        return compare_ids(lists, ref.side.read, cand.side.read), ""
    found = compare_counts(ref.examined.scored.tokens, cand.examined.scored.tokens)
    return found, "" if found else "not both sides tell token ids or counts"


def _facts(measured: Measured) -> SideFacts:
    side, examined = measured.side, measured.examined
    if isinstance(side, Source):
        taken = side.ms_per_pair
        reasons = {"jitter": _NOT_SCORED, "memory_bytes": _NOT_SCORED}
        if not taken:
            reasons["ms_per_pair"] = "the table does not have them"
        return SideFacts("table", _described(side), ms_per_pair=taken, reasons=reasons)
    if examined is None:
        raise ValueError("a stage is examined before it is compared")
    return SideFacts(
        "stage" if side.is_here else "endpoint",
        _described(side),
        runs=examined.runs,
        jitter=examined.jitter,
        ms_per_pair=examined.scored.ms_per_pair,
        bytes=examined.bytes,
        failed=examined.scored.failed,
        reasons=_memory_reason(side, examined),
    )


def _memory_reason(side: Live, examined: Examined) -> dict[str, str]:
    if examined.bytes is not None:
        return {}
    return {"memory_bytes": "this system does not tell it" if side.is_here else _ELSEWHERE}


def _described(side: Source | Live) -> Mapping[str, Any]:
    """Return what a report says of a side: names and a fingerprint, no address, no path."""
    if isinstance(side, Source):
        return {"table": side.file, "column": side.column, "fingerprint": dict(side.fingerprint) or None}
    observed = side.stage.observed
    return {
        "fingerprint": asdict(side.stage.fingerprint),
        "observed": None if observed is None else asdict(observed),
    }
