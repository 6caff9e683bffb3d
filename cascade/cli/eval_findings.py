"""What a report says may be believed, in a few lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["findings"]

_PARTS: Final = ("missed_escalation", "wasted_escalation", "wrong_depth", "wrong_cluster", "false_exclusion", "other")
_LEAST_PART: Final = 0.0005
"""A part of regret below it is printed as nothing."""


def findings(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what regret is made of, what of the oracle is luck, what is shown of always-large, and each load level."""
    yield _regret(report["regret"])
    yield from _oracle(report["oracle"])
    yield from (f"  {each['says']}" for each in report["tests"]["non_inferiority"])
    levels = report["levels"]
    if len(levels) > 1:
        yield "Load levels"
        yield from (_level(each, late) for each, late in zip(levels, report["latency"]["levels"], strict=True))


def _regret(regret: Mapping[str, Any]) -> str:
    parts = [f"{regret[part]:.3f} {part.replace('_', ' ')}" for part in _PARTS if abs(regret[part]) >= _LEAST_PART]
    return f"Regret of {regret['of']}, an upper bound: {regret['total']:.3f}" + (
        f" = {' + '.join(parts)}" if parts else ""
    )


def _oracle(oracle: Mapping[str, Any]) -> Iterator[str]:
    if oracle["inflation"] is not None:
        in_sample, crossfit = (oracle[each]["over_constant"] for each in ("in_sample", "crossfit"))
        yield (
            f"Oracle over the best constant action: {in_sample:+.3f} on the judgements it chose by, "
            f"{crossfit:+.3f} on the other half"
        )


def _level(level: Mapping[str, Any], late: Mapping[str, Any]) -> str:
    time = "" if late["p95"] is None else f", p95 {late['p95']:.0f} ms"
    return (
        f"  {level['name']}: ndcg {level['ndcg']:.3f}, {level['minus_always_large']:+.3f} to always-large, "
        f"{level['large_share']:.3f} of the large pairs{time}"
    )
