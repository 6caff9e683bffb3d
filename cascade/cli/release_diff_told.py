"""Say in lines of a terminal how two releases differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["lines_of"]

_COUNTED: Final = {
    "large_pairs": "pairs at the large stage",
    "small_pairs": "pairs at the small stage",
    "large_tokens": "tokens at the large stage",
    "small_tokens": "tokens at the small stage",
}


def lines_of(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield both releases, what changes for traffic, and where they were replayed, what that gains and costs."""
    for mark, name in (("-", "before"), ("+", "after")):
        loaded = told[name]
        yield f"{mark} {loaded['release']}, release {loaded['digest']}, policy {loaded['policy_digest']}"
    yield from told["changes"] or ["nothing changes for traffic"]
    yield from told["rollout"]
    if told["replay"] is not None:
        yield from _replayed(told["replay"])


def _replayed(replay: Mapping[str, Any]) -> Iterator[str]:
    yield f"replayed on {replay['queries']} queries of {', '.join(replay['tables'])}"
    quality = replay["quality"]
    yield (
        f"  nDCG@{replay['k']}: {quality['before']['value']:.4f} -> {quality['after']['value']:.4f}, "
        f"difference {_figure(quality['difference'])}"
    )
    for name, words in _COUNTED.items():
        if (cost := replay["cost"][name]) is not None:
            yield f"  {words}, a query: {_cost(cost)}"
    shares = replay["decisions"]
    yield (
        f"  decisions that differ: {shares['any']['value']:.1%} of the queries (depth {shares['depth']['value']:.1%}, "
        f"action {shares['action']['value']:.1%}, candidates sent {shares['escalated']['value']:.1%})"
    )
    yield f"  orders that differ in the top {replay['k']}: {replay['orders']['value']:.1%} of the queries"
    yield from (f"note: {each}" for each in replay["notes"])
    yield from (f"warning: {each}" for each in replay["warnings"])


def _figure(figure: Mapping[str, Any]) -> str:
    interval = figure["interval"]
    told = f" [{interval[0]:+.4f}, {interval[1]:+.4f}]" if interval is not None else f" ({figure['reason']})"
    return f"{figure['value']:+.4f}{told}"


def _cost(cost: Mapping[str, Any]) -> str:
    before, after = cost["before"]["value"], cost["after"]["value"]
    change = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before:.2f} -> {after:.2f}{change}"
