"""What ``cascade rollout`` tells of a release beforehand, and of what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cascade.cli.rollout_tables import within_table
from cascade.cli.rollout_words import duration, figure, number, percent, plain, short_digest, when

__all__ = ["foreseen_view", "history_view"]


def foreseen_view(told: Mapping[str, Any], *, at_once: bool) -> Iterator[RenderableType]:
    """Yield what a release will have to show, and how soon harm is rolled back."""
    yield Text(f"release {plain(told['release'])}, {plain(told['digest'])}")
    if at_once:
        yield Text(
            "all traffic at once: it is compared with nothing, and nothing takes it back by itself", style="yellow"
        )
        return
    steps = " -> ".join("beside" if share == 0 else f"{share:g}%" for share in told["steps"])
    least = f"at least {duration(told['min_seconds'])} and {number(told['min_queries'])} answers of the release at each"
    yield Text(f"steps: {steps}; {least}")
    limits = [_limit(name, value) for name, value in told["limits"].items() if value is not None]
    off = [plain(name) for name, value in told["limits"].items() if value is None]
    yield Text(f"to be shown: {', '.join(limits) or 'nothing'}" + (f"; switched off: {', '.join(off)}" if off else ""))
    yield Text("the first step waits for")
    yield from (Text(f"  {plain(each)}") for each in told["waits_for"])
    rows, per_s = told["rollback_within"], told["requests_per_s"]
    if not rows:
        yield Text("no harm is looked for: no guardrail is on, or no step has a share of the traffic", style="yellow")
        return
    rate = f"{per_s:.3g} requests a second, as now" if per_s else "no traffic now: count answers, not seconds"
    yield Text(
        f"rolled back within, with a probability of 0.99 ({rate}; a false alarm: {percent(told['alpha'])} at most)"
    )
    yield within_table(rows)


def _limit(name: str, value: Any) -> str:
    signed = name not in {"drift_psi", "ranking_loss"}
    return f"{plain(name)} {figure(name, value, signed=signed)}"


def history_view(history: list[dict[str, Any]]) -> Iterator[Text]:
    """Yield what happened, latest first, each with why and what the guardrails said at that moment."""
    if not history:
        yield Text("nothing happened yet")
    for each in history:
        asked = [word for word, said in (("at once", each.get("at_once")), ("lenient", each.get("lenient"))) if said]
        what = plain(each["what"]).replace("_", " ")
        share = f"at {percent(each['share'])}" if each["share"] else ""
        step = f"at the step {plain(each['step'])}" if each["what"] == "refused" and each.get("step") else ""
        parts = [what, plain(each["release"]), short_digest(each["digest"], 12), share, step, *asked]
        yield Text(f"{when(each['at'])}  {'  '.join(filter(None, parts))}")
        yield from (Text(f"    {plain(why)}") for why in each["why"])
        guardrails = (each.get("evidence") or {}).get("guardrails") or []
        if guardrails:
            counts = Counter(plain(one["verdict"]) for one in guardrails)
            yield Text(
                "    guardrails: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            )
        yield from (Text(f"      {_numbers(one)}") for one in guardrails if one["verdict"] == "fail")


def _numbers(one: Mapping[str, Any]) -> str:
    name = plain(one["name"])
    return (
        f"{name}: stable {figure(name, one.get('stable'))}, canary {figure(name, one.get('canary'))}, differs "
        f"{figure(name, one.get('difference'), signed=True)}, limit {figure(name, one.get('limit'))}, n {number(one.get('n'))}"
    )
