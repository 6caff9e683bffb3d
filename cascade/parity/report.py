"""``parity.json``: how two sides compare, check by check. No text of a query or document is in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from cascade.parity.agreement import Agreement, Spread
from cascade.parity.assemble import Question
from cascade.parity.batches import Jitter
from cascade.parity.compare import Compared
from cascade.parity.comparison import Comparison, Coverage, SideFacts
from cascade.parity.contrast import Contrast
from cascade.parity.costs import Milliseconds, Speed, milliseconds, speed
from cascade.parity.notes import notes_of
from cascade.parity.pairs import OneSided
from cascade.parity.quality import Quality
from cascade.parity.score_space import ScoreRange, SpaceCheck
from cascade.parity.tolerances import Check
from cascade.replay.intervals import Figure

__all__ = ["BUILT_IN", "VERSION", "parity_report"]

VERSION: Final = 1
BUILT_IN: Final = "built-in"
"""Where pairs come from that are of no table and no collection."""


def parity_report(
    comparison: Comparison, found: Sequence[Check], question: Question, pairs_from: str
) -> dict[str, Any]:
    """Return the report as plain data: every number finite, None where one is undefined, with a reason near it."""
    told = {
        "report": "cascade parity",
        "version": VERSION,
        "passed": not any(check.passed is False for check in found),
        "checks": [asdict(check) for check in found],
        "notes": notes_of(comparison, built_in_only=pairs_from == BUILT_IN),
        "conditions": {
            "pairs": pairs_from,
            "k": question.k,
            "max_length": question.max_length,
            "resamples": question.resamples,
            "seed": question.seed,
            "gain": "linear",
            "error_space": comparison.spaces.common,
            "incomparable": comparison.spaces.incomparable,
        },
        "ref": _side(comparison.ref),
        "cand": _side(comparison.cand),
        "coverage": _coverage(comparison.coverage),
        **_compared(comparison.compared),
        "built_in": None if comparison.built_in is None else _compared(comparison.built_in),
        "score_space": _space(comparison.space),
        "contrast": None if comparison.contrasts is None else [_contrast(each) for each in comparison.contrasts],
        "tokens": None if comparison.tokens is None else asdict(comparison.tokens),
        "tokens_reason": comparison.tokens_reason or None,
        "gain": _gain(comparison.ref, comparison.cand),
    }
    return _plain(told)  # type: ignore[no-any-return]


def _side(facts: SideFacts) -> dict[str, Any]:
    return {
        "kind": facts.kind,
        **facts.described,
        "runs": facts.runs,
        "jitter": None if facts.jitter is None else _jitter(facts.jitter),
        "ms_per_pair": _dict(milliseconds(facts.ms_per_pair)),
        "memory_bytes": facts.bytes,
        "failed": dict(facts.failed),
        "reasons": dict(facts.reasons),
    }


def _jitter(jitter: Jitter) -> dict[str, Any]:
    return {
        **{str(situation): asdict(moved) for situation, moved in jitter.moved.items()},
        "repeat_sd": jitter.repeat_sd,
        "deterministic": jitter.is_deterministic,
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    def alone(found: OneSided) -> dict[str, Any]:
        return {"pairs": found.pairs, "first": found.first and list(found.first)}

    return {
        **asdict(coverage),
        "only_ref": alone(coverage.only_ref),
        "only_cand": alone(coverage.only_cand),
        "missing_at_cand": coverage.missing_at_cand,
        "missing_at_ref": coverage.missing_at_ref,
    }


def _compared(compared: Compared) -> dict[str, Any]:
    return {
        "agreement": {
            **_agreement(compared.whole),
            "misaligned_queries": compared.misaligned,
            "noise_ref_sd": compared.paired.noise_ref,
            "noise_cand_sd": compared.paired.noise_cand,
        },
        "flips": [asdict(bucket) for bucket in compared.flips],
        "large_flips": compared.large_flips,
        "quality": _quality(compared.quality),
        "slices": [
            {
                "attribute": part.attribute,
                "value": part.value,
                "agreement": _agreement(part.agreement),
                "quality": _quality(part.quality),
            }
            for part in compared.slices
        ],
    }


def _agreement(found: Agreement) -> dict[str, Any]:
    return {**asdict(found), "kendall": _dict(found.kendall), "overlap": _dict(found.overlap)}


def _quality(found: Quality | None) -> dict[str, Any] | None:
    if found is None:
        return None

    def metric(ref: float, cand: float, delta: Figure) -> dict[str, Any]:
        interval = None if delta.interval is None else list(delta.interval)
        return {"ref": ref, "cand": cand, "delta": delta.value, "interval": interval, "reason": delta.reason}

    return {
        "queries": found.queries,
        "without_relevant": found.without_relevant,
        "ndcg": metric(found.ndcg_ref, found.ndcg_cand, found.ndcg_delta),
        "mrr": metric(found.mrr_ref, found.mrr_cand, found.mrr_delta),
    }


def _space(space: SpaceCheck) -> dict[str, Any]:
    return {
        "found": space.relation,
        "expected": space.expected,
        "right": space.right,
        "statements": list(space.statements),
        "ref": _dict(space.ref),
        "cand": _dict(space.cand),
        "fits": {str(relation): asdict(fit) for relation, fit in space.fits.items()},
    }


def _contrast(contrast: Contrast) -> dict[str, Any]:
    return {**asdict(contrast), "lost": contrast.lost}


def _gain(ref: SideFacts, cand: SideFacts) -> dict[str, Any]:
    """Return how many times faster CAND is a pair, and how many bytes less it takes."""
    known = ref.bytes is not None and cand.bytes is not None
    return {
        "speed": _dict(speed(ref.ms_per_pair, cand.ms_per_pair)),
        "memory_bytes": (ref.bytes or 0) - (cand.bytes or 0) if known else None,
    }


def _dict(told: Milliseconds | Speed | Spread | ScoreRange | None) -> dict[str, Any] | None:
    return None if told is None else asdict(told)


def _plain(value: Any) -> Any:
    """Return plain data with finite numbers of nine significant digits: what lies beyond depends on the machine."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a report holds finite numbers only")
        return float(f"{value:.9g}")
    return str(value) if isinstance(value, str) else value
