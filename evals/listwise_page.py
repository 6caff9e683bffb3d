"""Write evals/listwise.md from the figures of `evals.listwise`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["page"]

_HEAD = """# What a listwise large stage is worth

Written by `python -m evals.listwise` from the orders of RankGPT-3.5 (five runs) and RankVicuna-7B (three runs) on TREC DL
2019 and 2020 (97 queries, 100 candidates of BM25 each, NIST's judgements; castorini/rank_llm). nDCG@10 with linear gain;
figures are means over runs, in brackets 95% intervals of a bootstrap over queries, paired where two are compared. No model
was called, and nothing was timed.

The small stage ranks all, the large one orders its first 20 (or 10) in one call. A call is what it costs, so cost is calls
a query. *gate* sends the share of queries whose small order is least certain (the fall of its scores over the first ten, in
units of their spread; no labels), *random* any, *oracle* those that gain most.
"""
_TAIL = """
## What follows

{found}

## Limits

- An order of the first 20 is taken from the run's order of all 100, which RankGPT and RankVicuna make with sliding windows.
  Shown these 20 alone, best first, a model may write another: the order it is shown matters to it.
- 97 queries of one collection, two models of 2023. The interval of a difference is about .03 wide on either side: a
  smaller gain than that cannot be seen here, nor a smaller harm.
- Both oracles know the judgements of each query, so no rule without labels comes near them. Choosing on the other runs of
  the same model takes out the luck of a run, not that knowledge.
- The ideal order is that of the judged candidates, so figures are higher than those of all judged documents. A candidate
  without a judgement counts as not relevant.
"""


def page(told: Mapping[str, Any]) -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_quality(told), "", *_shares(told), "", *_oracles(told), ""]) + _TAIL.format(
        found="\n".join(_found(told))
    )


def _quality(told: Mapping[str, Any]) -> Iterator[str]:
    yield "## Small alone, and its first 20 ordered for every query\n"
    yield (
        "| pair | small | large, all 100 | top 10 ordered | top 20 ordered | top 20 - small | queries better / same / worse "
        "| sd over runs |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, one in told.items():
        better, equal, worse = one["better, equal, worse"]
        cells = [_told(one["small"]), _told(one["large"]), *[_told(one["static"][top]) for top in ("10", "20")]]
        cells += [_told(one["static minus small"]["20"]), f"{better} / {equal} / {worse}"]
        yield f"| {name} | {' | '.join(cells)} | {one['sd of a query over runs']:.3f} |"


def _shares(told: Mapping[str, Any]) -> Iterator[str]:
    yield "## Gain over small alone, where only a share of the queries is sent\n"
    yield "| pair | calls a query | gate | random | gate - random | oracle |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, one in told.items():
        for share, found in one["minus small, at a share of the calls"].items():
            yield f"| {name} | {share} | {' | '.join(_told(found[kind]) for kind in ('gate', 'random', 'gate minus random', 'oracle'))} |"


def _oracles(told: Mapping[str, Any]) -> Iterator[str]:
    yield "## The better of the two orders for each query\n"
    yield "| pair | calls a query | oracle - small, seeing the runs | chosen on other runs |"
    yield "|---|---:|---:|---:|"
    for name, one in told.items():
        found = one["oracle minus small"]
        told_ = f"{_told(found['seeing the runs'])} | {_told(found['chosen on other runs'])}"
        yield f"| {name} | {found['calls a query']:.2f} | {told_} |"


def _found(told: Mapping[str, Any]) -> Iterator[str]:
    """Say of each pair what its interval says, and no more."""
    for name, one in told.items():
        value, low, high = one["static minus small"]["20"]
        if low is None or high is None:
            verdict = "too few queries for an interval"
        elif low > 0:
            verdict = "ordering the first 20 of every query pays"
        elif high < 0:
            verdict = "ordering the first 20 of every query does harm: the release should escalate nothing"
        else:
            verdict = "that it pays is not shown"
        half = one["minus small, at a share of the calls"]["0.5"]["gate minus random"]
        yield f"- **{name}**: {verdict} ({_told([value, low, high])}). At half of the calls the gate minus random: {_told(half)}."


def _told(figure: Sequence[float | None]) -> str:
    value, low, high = figure
    if value is None:
        return "none"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
