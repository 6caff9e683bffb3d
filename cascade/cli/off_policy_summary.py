"""The short form of what records say of a release, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["summary_of"]

_ESTIMATES: Final = {"ips": "IPS", "snips": "SNIPS", "dr": "DR", "difference": "minus what was logged"}
_LEFT_OUT: Final = {
    "repeated": "there twice",
    "shadows": "of shadows: they answered no request",
    "unsplit": "of moments when traffic was not split",
    "thin": "of moments when a release had less than 5%",
    "other_release": "of releases that are not in the split",
    "undecided": "of requests that nothing was decided for",
    "degraded": "degraded",
    "outside_common_sample": "of queries that not all releases record",
    "observed_incomplete": "observed without all scores of both stages",
    "observed_untold": "observed, but the target reads or scores what was not",
    "torn": "lines torn",
    "strange": "lines that are no record of this version",
    "headless": "without the line that says what they depend on",
    "outcomes_repeated": "outcomes there twice",
    "outcomes_of_no_record": "outcomes of no record",
}


def summary_of(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report: what was used, coverage, value, cost, shadow pairs, and what was left out."""
    counts = report["counts"]
    yield f"{report['target']['release']}: {counts['records']} records, {counts['used']} to estimate from"
    if report["coverage"] is not None:
        yield from _coverage(report["coverage"])
    for name in ("reward", "large_pairs"):
        if report[name] is not None:
            yield from _estimate(name.replace("_", " "), report[name])
    if report["shadow"] is not None:
        yield from _shadow(report["shadow"], report["conditions"]["k"])
    yield from (f"{counts[name]} {what}" for name, what in _LEFT_OUT.items() if counts.get(name))
    yield from report["notes"]


def _coverage(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"the same candidates sent on {_figure(told, 'same_set')} of {told['records']} records"
    if "same_answer" in told:
        yield f"the same answer on {_figure(told, 'same_answer')}; no release does so on {_figure(told, 'unsupported')}"
    for name, part in told["by_class"].items():
        yield f"  {name}: {_figure(part, 'same_set')} of {part['records']}"


def _estimate(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    logged = f", logged {_figure(told, 'logged')}" if "logged" in told else ""
    if told["refused"]:
        yield f"{name}: REFUSED{logged}"
        yield from (f"  {refusal}" for refusal in told["refused"])
        return
    if "target" in told:
        yield f"{name}: {_figure(told, 'target')}, counted{logged}"
        return
    yield (
        f"{name}: "
        + ", ".join(f"{what} {_figure(told, key)}" for key, what in _ESTIMATES.items() if key in told)
        + logged
    )
    weights = told["weights"]
    yield (
        f"  mean weight {weights['mean']:.3f}, effective sample size {weights['effective_sample_size']:.0f} "
        f"of {told['queries']} queries, {weights['clipped_mass']:.1%} of the weight clipped"
    )


def _shadow(told: Mapping[str, Any], k: int) -> Iterator[str]:
    yield (
        f"observed, {told['records']} records: SILVER ndcg@{k} {_figure(told, 'silver')}, "
        f"large pairs {_figure(told, 'large_pairs')}, {told['large_share']:.3f} of always-large"
    )
    yield (
        f"  whatever the judgements, ndcg@{k} lost is at most {_figure(told, 'lost_at_most')}; "
        f"the first {k} unchanged on {_figure(told, 'unchanged')}"
    )


def _figure(told: Mapping[str, Any], name: str) -> str:
    value, interval = told[name], told["intervals"][name]
    ends = "" if interval is None else f" ({' '.join('-' if end is None else f'{end:.4g}' for end in interval)})"
    return f"{value:.4g}{ends}"
