"""Write evals/certify.md from evals/reports/certify.json and cranfield_run.json: `python -m evals.certify_tables`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
_HEAD: Final = """# What can be certified

Written by `python -m evals.certify_tables` from `reports/certify.json` (`python -m evals.certify`) and
`reports/cranfield_run.json` (`python -m evals.cranfield_run`).

JQaRA's published scores, {pair}, channels {channels}, nDCG@10 by judgements, delta {delta}. By each of {seeds} seeds the
1,667 queries are parted anew: 40% certify. *Share* is the part of always-large's pairs that the certified policy sends, on the queries
that certified it, 1 where nothing could be certified; mean, standard deviation and range over seeds. *Rest above* counts the seeds in
which the certified policy lost more than epsilon on the queries that did not certify: what is promised is at most {delta} of
them, but for the rest's own chance (at a true loss just below epsilon its mean is above it half of the time) and for being the
complement of the certifying sample.

How to bet was chosen by looking at the first eleven of these seeds (and at others of the same queries), so that the distance between
neighbouring bounds is not evidence of its own; that they hold is simulated in the tests.

Where queries are left untouched they are the rest: nothing saw them. Where none are, the rest is what fits and chooses, each query by
models that have not seen it; but the path was chosen on them.
"""
_BOUNDS: Final = """Mean share, and in how many seeds the rest lost more than epsilon. `star, informed` is the default and `wsr, informed` the
alternative; *informed* bets begin with the mean and variance of the queries that chose the path. The others are no part of the
package: they lost, or (CLT, mean alone) they promise what they do not keep.
"""


def main() -> None:
    """Write the page."""
    told = json.loads((_HERE / "reports" / "certify.json").read_text(encoding="utf-8"))
    run = json.loads((_HERE / "reports" / "cranfield_run.json").read_text(encoding="utf-8"))
    (_HERE / "certify.md").write_text(page(told, run), encoding="utf-8")


def page(told: dict[str, Any], run: dict[str, Any]) -> str:
    """Return the page of the two reports."""
    conditions = told["conditions"]
    variants = {name: found for name, found in told.items() if name != "conditions"}
    channels = ", ".join(next(iter(conditions["channels"].values())))
    lines = [
        _HEAD.format(pair=conditions["pair"], channels=channels, delta=conditions["delta"], seeds=conditions["seeds"])
    ]
    for name, found in variants.items():
        lines += [f"## {name[0].upper()}{name[1:]}\n", *_families(found["two-sided"], "star, informed"), ""]
    name, found = next(iter(variants.items()))
    lines += [f"## Bounds, {name}\n", _BOUNDS]
    for sided in ("two-sided", "one-sided"):
        lines += [f"### {sided[0].upper()}{sided[1:]}, family calibrated\n", *_bounds(found[sided]), ""]
    lines += list(_cranfield(run))
    return "\n".join(lines) + "\n"


def _families(found: Mapping[str, Any], bound: str) -> Iterator[str]:
    yield "| epsilon | family | share | sd | range | certified | rest above | mean loss of the rest | share at the first of many attempts |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    for epsilon, families in found.items():
        for family, bounds in families.items():
            one, spent = bounds[bound], bounds[f"{bound}, first of many attempts"]
            low, high = one["range"]
            spread = "-" if one["sd"] is None else f"{one['sd']:.3f}"
            yield (
                f"| {epsilon} | {family} | {one['share']:.3f} | {spread} | {low:.2f}-{high:.2f} | {one['certified']}/{one['seeds']} |"
                f" {one['rest_above_epsilon']}/{one['seeds']} | {one['rest_mean_loss']:+.4f} | {spent['share']:.3f} |"
            )


def _bounds(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| bound | " + " | ".join(f"epsilon {epsilon}" for epsilon in found) + " |"
    yield "|---|" + "---:|" * len(found)
    for bound in next(iter(found.values()))["calibrated"]:
        cells = [found[epsilon]["calibrated"][bound] for epsilon in found]
        told = " | ".join(f"{cell['share']:.3f} ({cell['rest_above_epsilon']}/{cell['seeds']})" for cell in cells)
        yield f"| {bound} | {told} |"


def _cranfield(run: Mapping[str, Any]) -> Iterator[str]:
    yield "## Cranfield with the packaged models: collect, calibrate, eval, certify\n"
    yield "The commands as a user runs them; what each said, in short.\n"
    yield "| command | exit status | seconds | said |"
    yield "|---|---:|---:|---|"
    for step in run["steps"]:
        yield f"| `{step['command']}` | {step['status']} | {step['seconds']:.0f} | {'; '.join(step['said'])} |"
    yield "\n" + run["conclusion"]


if __name__ == "__main__":
    main()
