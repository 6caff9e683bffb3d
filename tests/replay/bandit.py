"""A random split of traffic over two releases, whose answers are accepted at odds that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from cascade.replay.logged.outcomes import Outcomes
from cascade.replay.logged.report import Asked, off_policy_report
from tests.replay.served import Query, Serving, Traffic, made_queries, orders_of, serving_of, traffic

__all__ = [
    "BY_CLASS",
    "DEEP",
    "DEEP_ALONE",
    "FOUR",
    "OBSERVING",
    "OTHER",
    "QUERIES",
    "SHALLOW",
    "SPLIT",
    "asked_report",
    "outcomes_of",
    "truth_of",
    "with_last_changed",
    "worth_of",
    "written_split",
]

FOUR: Final = {"kind": "static", "top_m": 4}
SHALLOW: Final = serving_of("shallow", 0.5, depth=4, escalation=FOUR)
DEEP: Final = serving_of("deep", 0.5, depth=12, escalation=FOUR)
BY_CLASS: Final = serving_of(
    "by-class", depth={"kind": "greedy", "default": 12, "classes": {"identifier": 4}}, escalation=FOUR
)
OTHER: Final = serving_of("other", depth=12, escalation={"kind": "static", "top_m": 3})
QUERIES: Final = made_queries(600)
SPLIT: Final = (SHALLOW, DEEP)
DEEP_ALONE: Final = replace(DEEP, share=1.0)
OBSERVING: Final = serving_of("observing", mode="observe", depth=12, escalation="none")


def worth_of(query: Query, order: tuple[int, ...]) -> float:
    """Return how likely an answer is accepted: by the rank of the candidate that the large stage likes best."""
    return 0.9 / (1 + order.index(int(np.argmax(query.large))))


def outcomes_of(served: Traffic, seed: int = 3) -> Outcomes:
    """Draw whether each answer is accepted."""
    random = np.random.default_rng(seed)
    return Outcomes(
        {name: float(random.random() < worth_of(query, order)) for name, (query, _, order) in served.served.items()}
    )


def truth_of(target: Serving) -> float:
    """Return the mean reward of a release that serves all queries."""
    pairs = zip(QUERIES, orders_of(QUERIES, target), strict=True)
    return float(np.mean([worth_of(query, order) for query, order in pairs]))


def asked_report(
    records: Path, target: Serving, split: tuple[Serving, ...] = (), outcomes: Outcomes | None = None, **fields: Any
) -> dict[str, Any]:
    """Return what records say of a release."""
    arms = tuple(each.arm for each in split)
    asked = Asked([records], target.decider, {"release": target.release.release}, arms, outcomes, resamples=400)
    return off_policy_report(replace(asked, **fields))


def with_last_changed(path: Path, **changes: Any) -> Path:
    """Write the lines again, the last one changed."""
    lines = path.read_bytes().splitlines(keepends=True)
    last = orjson.dumps(orjson.loads(lines[-1]) | changes, option=orjson.OPT_APPEND_NEWLINE)
    path.write_bytes(b"".join([*lines, last]))
    return path


def written_split(folder: Path) -> tuple[Path, Outcomes]:
    """Write the records of 600 queries, served by either release at random; return them and their outcomes."""
    served = traffic(QUERIES, SPLIT)
    return served.write(folder / "records"), outcomes_of(served)
