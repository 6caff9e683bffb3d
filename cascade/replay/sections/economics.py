"""Time and money of a policy at every load level, against always-large at equal service times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.economics import STAGES, BreakEven, Terms, Work, break_even, busy_ms, cost, in_time, latency_ms
from cascade.replay.intervals import Figure, Resamples, figure, undefined
from cascade.replay.percentile import percentile
from cascade.replay.queries import ReplayedQuery
from cascade.replay.report import number, split
from cascade.replay.sections.levels import work_of

__all__ = ["columns", "cost_told", "latency_told"]

_ALWAYS_LARGE: Final = "always-large"
_PERCENTILES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
_NO_DEADLINE: Final = "no deadline is told"
_NO_POLICY: Final = "no policy was replayed"
_NO_QUEUE: Final = "no queue: a query's rounds one after the other, and no query waits for another"
_NONE_IN_TIME: Final = "no query is answered in time"


def columns(queries: Sequence[ReplayedQuery]) -> dict[str, NDArray[Any]]:
    """Return what always-large gives its stage to do (Q,), under ``economics.``."""
    return {
        "economics.large_pairs": np.array([query.pairs for query in queries], dtype=np.int32),
        "economics.large_ms": np.array(
            [float(query.ms["large"][: query.pairs].sum()) if "large" in query.ms else np.nan for query in queries]
        ),
    }


def _works(columns: Mapping[str, NDArray[Any]], names: Sequence[str]) -> dict[str, Work]:
    """Return the work of always-large, then of each level."""
    pairs = columns["economics.large_pairs"]
    nothing = np.zeros_like(pairs)
    always = Work(
        pairs={"small": nothing, "large": pairs},
        calls={"small": nothing, "large": (pairs > 0).astype(np.int32)},
        measured_ms={"small": nothing.astype(np.float64), "large": columns["economics.large_ms"]},
    )
    return {_ALWAYS_LARGE: always, **{name: work_of(columns, name) for name in names}}


def _untimed(work: Work, terms: Terms) -> str | None:
    """Return why a time cannot be told, None where it can."""
    for stage in STAGES:
        missing = int(np.isnan(busy_ms(work, terms, stage)).sum())
        if missing:
            return f"ms of the {stage} stage: neither given nor in the table for all pairs of {missing} queries"
    return None


def latency_told(
    columns: Mapping[str, NDArray[Any]], names: Sequence[str], terms: Terms, drawn: Resamples
) -> dict[str, Any]:
    """Return milliseconds of always-large and of every level, and seconds of the large stage for 1,000 queries.

    ``names`` are the levels, the release as it stands first; there may be none.
    """
    works = _works(columns, names)
    rows = {name: split(_latency(work, terms, drawn)) for name, work in works.items()}
    absent = split({name: undefined(_NO_POLICY) for name in (*dict(_PERCENTILES), "in_time")})
    return {
        "service_times": _service_times(works, names, terms),
        "assumes": _NO_QUEUE,
        "deadline_ms": terms.deadline_ms,
        "always_large": rows[_ALWAYS_LARGE],
        "policy": rows[names[0]] if names else absent,
        "levels": [{"name": name, **rows[name]} for name in names],
        "large_seconds_per_1000": split(_large_seconds(works, names, terms, drawn)),
    }


def _service_times(works: Mapping[str, Work], names: Sequence[str], terms: Terms) -> dict[str, Any]:
    """Return milliseconds of a pair and where they come from: given, or the table's mean over what is sent.

    Over what always-large sends, that is, and for the small stage over what the first level scores.
    """
    told: dict[str, Any] = {}
    for stage, name in (("small", names[0] if names else None), ("large", _ALWAYS_LARGE)):
        given = terms.ms_per_pair.get(stage)
        measured = None if name is None else _measured_mean(works[name], stage)
        source = "given" if given is not None else "not told" if measured is None else "table"
        told[stage] = {"ms_per_pair": number(measured if given is None else given), "source": source}
    return {**told, "ms_per_call": terms.ms_per_call}


def _measured_mean(work: Work, stage: str) -> float | None:
    spent, pairs = float(work.measured_ms[stage].sum()), int(work.pairs[stage].sum())
    return spent / pairs if pairs and not np.isnan(spent) else None


def _latency(work: Work, terms: Terms, drawn: Resamples) -> dict[str, Figure]:
    untimed = _untimed(work, terms)
    taken = latency_ms(work, terms)
    found = {name: percentile(taken, share, untimed or "") for name, share in _PERCENTILES}
    return {**found, "in_time": _in_time(work, terms, drawn, untimed)}


def _in_time(work: Work, terms: Terms, drawn: Resamples, untimed: str | None) -> Figure:
    if untimed is not None or terms.deadline_ms is None:
        return undefined(untimed or _NO_DEADLINE)
    return figure(drawn.means(in_time(work, terms)), drawn.queries, "")


def _large_seconds(
    works: Mapping[str, Work], names: Sequence[str], terms: Terms, drawn: Resamples
) -> dict[str, Figure]:
    """Return seconds of the large stage for 1,000 queries: milliseconds a query, as it happens; and the share saved."""
    asked = {"always_large": _ALWAYS_LARGE, **({"policy": names[0]} if names else {})}
    busy = {name: busy_ms(works[work], terms, "large") for name, work in asked.items()}
    if any(np.isnan(each).any() for each in busy.values()):
        return dict.fromkeys((*asked, "saved"), undefined(_untimed(works[_ALWAYS_LARGE], terms) or _NO_POLICY))
    draws = drawn.means(np.stack([*busy.values()]))
    found = {name: figure(draws[:, at], drawn.queries, "") for at, name in enumerate(busy)}
    if not names:
        return {**found, "policy": undefined(_NO_POLICY), "saved": undefined(_NO_POLICY)}
    with np.errstate(divide="ignore", invalid="ignore"):
        saved = 1.0 - draws[:, 1] / draws[:, 0]
    return {**found, "saved": figure(saved, drawn.queries, "always-large takes no time")}


def cost_told(
    columns: Mapping[str, NDArray[Any]], names: Sequence[str], terms: Terms, drawn: Resamples
) -> dict[str, Any]:
    """Return what 1,000 queries answered in time cost, of always-large and every level, on every device.

    ``device`` None is the large stage as it was measured or its milliseconds were given. Queries that are late
    cost too, and what they cost is borne by those in time.
    """
    works = _works(columns, names)
    places = [(None, terms), *((device.name, terms.on(device)) for device in terms.devices)]
    rows = [
        {"name": name, "device": device, **split(_costs(work, on, drawn))}
        for name, work in works.items()
        for device, on in places
    ]
    pairs = [break_even(one, other, terms.utilisation) for one, other in combinations(terms.devices, 2)]
    return {
        "utilisation": terms.utilisation,
        "price_per_hour": dict(terms.price_per_hour),
        "devices": {
            device.name: {"ms_per_pair": device.ms_per_pair, "price_per_hour": device.price_per_hour}
            for device in terms.devices
        },
        "rows": rows,
        "break_even": [_break_even(each, works, drawn) for each in pairs],
    }


def _costs(work: Work, terms: Terms, drawn: Resamples) -> dict[str, Figure]:
    untimed = _untimed(work, terms)
    late = _in_time(work, terms, drawn, untimed)
    unpriced = [stage for stage in STAGES if work.pairs[stage].any() and stage not in terms.price_per_hour]
    why = untimed or (f"no price is told for the {' and the '.join(unpriced)} stage" if unpriced else None)
    if why is not None:
        return {"in_time": late, "per_1000": undefined(why), "per_1000_in_time": undefined(why)}
    spent = cost(work, terms)
    per_query = drawn.means(spent)
    found = {"in_time": late, "per_1000": figure(1000.0 * per_query, drawn.queries, "")}
    if terms.deadline_ms is None:
        return {**found, "per_1000_in_time": undefined(_NO_DEADLINE)}
    with np.errstate(divide="ignore", invalid="ignore"):
        borne = 1000.0 * per_query / drawn.means(in_time(work, terms))
    return {**found, "per_1000_in_time": figure(borne, drawn.queries, _NONE_IN_TIME)}


def _break_even(found: BreakEven, works: Mapping[str, Work], drawn: Resamples) -> dict[str, Any]:
    load = found.pairs_per_hour
    never = f"one {found.fast.name} is full before it costs as little as {found.slow.name}"
    slow, fast = found.slow.price_per_hour, found.fast.price_per_hour
    ratio = fast / slow if slow else None
    queries: dict[str, Figure] = {}
    for name, work in works.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = (0.0 if load is None else load) / drawn.means(work.pairs["large"])
        queries[name] = (
            undefined(never) if load is None else figure(rate, drawn.queries, "nothing goes to the large stage")
        )
    return {
        "slow": found.slow.name,
        "fast": found.fast.name,
        "speed_up": number(found.speed_up),
        "price_ratio": number(ratio),
        "break_even_price_per_hour": number(found.price),
        "per_million_pairs": {name: number(each) for name, each in found.per_million.items()},
        "cheaper_when_full": found.cheaper,
        "pairs_per_hour": number(load),
        "queries_per_hour": split(queries),
    }
