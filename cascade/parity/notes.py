"""What a reader of a comparison must be told in words."""

from __future__ import annotations

from collections.abc import Iterator

from cascade.parity.comparison import Comparison, Coverage, SideFacts

__all__ = ["notes_of"]


def notes_of(comparison: Comparison, *, built_in_only: bool) -> list[str]:
    """Return what was left out, what failed, what noise and ranges mean, and what the score spaces are. No text."""
    return [
        *_left_out(comparison.coverage),
        *_of_side("REF", comparison.ref),
        *_of_side("CAND", comparison.cand),
        *(["only built-in pairs were compared; name a --dataset of your own texts"] if built_in_only else []),
        *_within_jitter(comparison),
        *comparison.space.statements,
    ]


def _left_out(coverage: Coverage) -> Iterator[str]:
    for ours, theirs, alone, queries in (
        ("REF", "CAND", coverage.only_ref, coverage.queries_only_ref),
        ("CAND", "REF", coverage.only_cand, coverage.queries_only_cand),
    ):
        if alone.first is not None:
            query, document = alone.first
            yield (
                f"{alone.pairs} pairs have a score at {ours} and none at {theirs}; the first is query {query}, "
                f"document {document}"
            )
        if queries:
            yield f"{queries} queries are at {ours} alone"
    if coverage.neither:
        yield f"{coverage.neither} pairs have a score at neither side"
    if coverage.without_candidates:
        yield f"{coverage.without_candidates} queries have no candidate"


def _of_side(name: str, facts: SideFacts) -> Iterator[str]:
    if facts.failed:
        yield f"{name} failed {len(facts.failed)} queries: {', '.join(sorted(set(facts.failed.values())))}"
    if facts.jitter is not None and not facts.jitter.is_deterministic:
        yield (
            f"{name} answers equal calls differently: errors are those of means over {facts.runs} runs, and what their "
            "own noise explains is no error"
        )


def _within_jitter(comparison: Comparison) -> Iterator[str]:
    jitter, spaces = comparison.ref.jitter, comparison.spaces
    reach = None if jitter is None else jitter.greatest
    largest = comparison.compared.whole.max_error
    if reach and largest is not None and largest <= reach and spaces.ref is spaces.common:
        yield f"REF itself moves by {reach:.3g} over repeats and batches, and no error is larger: no difference is shown"
