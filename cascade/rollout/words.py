"""Say in words what a release does: its stages, its depth, its escalation, its calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from cascade.calibration.artefact import Benefit, CalibrationArtefact, ScorerIdentity
from cascade.policy.conditions import signal_name
from cascade.policy.depth import AnyDepth
from cascade.policy.depth_rules import (
    AdaptiveDepth,
    Condition,
    FixedDepth,
    GainDepth,
    GreedyDepth,
    SignalsDepth,
    SkipDepth,
)
from cascade.policy.escalation_rules import (
    Accept,
    CalibratedEscalation,
    Escalation,
    FusedEscalation,
    NoEscalation,
    StaticEscalation,
)
from cascade.policy.level_specs import LevelSpec
from cascade.policy.release import Budgets, GuardrailLimits, OnePair, RolloutRules, StageSpec
from cascade.policy.tuning import Tuning

__all__ = [
    "calibration_lines",
    "depth_words",
    "escalation_words",
    "level_words",
    "rollout_lines",
    "stage_words",
    "time_words",
    "tuning_words",
]

_BOUNDS: Final = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}


def stage_words(spec: StageSpec | None) -> str:
    """Say what a stage is, without its address."""
    if spec is None:
        return "none"
    revision = "" if spec.revision is None else f" at {spec.revision}"
    what = f"{spec.dtype}, {spec.engine}, {spec.serializer}, {spec.max_length} tokens, {spec.score_space}"
    return f"{spec.adapter}: {spec.model}{revision}, {what}"


def depth_words(rule: AnyDepth) -> str:
    """Say how many candidates the small stage scores."""
    match rule:
        case FixedDepth():
            return f"the first {rule.depth} candidates" if rule.depth else "no candidate"
        case SkipDepth():
            return f"no candidate; the first {rule.default} where the head repeats itself"
        case GreedyDepth():
            classes = ", ".join(f"{name} {depth or 'none'}" for name, depth in rule.classes.items())
            return f"by query class: {classes or 'none named'}; else {rule.default}; {_bounds(rule)}"
        case SignalsDepth():
            rules = "; ".join(f"{one.depth or 'none'} where {_all(one.when)}" for one in rule.rules)
            return f"{rules}{'; ' if rules else ''}else {rule.default}; {_bounds(rule)}"
        case GainDepth():
            grid = ", ".join(str(at.depth) for at in rule.depths)
            price = f"{rule.price_per_candidate:g} a candidate"
            return f"as deep as the predicted gain pays {price}, of {grid}; {_bounds(rule)}"
        case _:
            assert_never(rule)


def _bounds(rule: AdaptiveDepth) -> str:
    return f"between {rule.least} and {rule.most}"


def escalation_words(rule: Escalation) -> str:
    """Say what the large stage scores."""
    match rule:
        case NoEscalation():
            return f"nothing goes to the large stage{f': {rule.reason}' if rule.reason else ''}"
        case StaticEscalation():
            return f"the first {rule.top_m} of the small order go to the large stage"
        case FusedEscalation():
            return (
                f"the {rule.top_m} candidates of most expected value at {rule.k} go to the large stage; {_rest(rule)}"
            )
        case CalibratedEscalation():
            return "; ".join(_calibrated(rule))
        case _:
            assert_never(rule)


def _calibrated(rule: CalibratedEscalation) -> list[str]:
    worth = f"candidates worth at least {rule.price_per_pair:g} of the large order's gain at {rule.k}"
    said = [f"{worth} go to the large stage, {_rounds(rule)}"]
    if rule.max_share < 1:
        said.append(f"at most {_percent(rule.max_share)} of the depth")
    if rule.accept is not None:
        said.append(f"the small order stands where {_accepted(rule.accept)}")
    if rule.direct is not None:
        top = f"the first {rule.direct.top_m} of the first-stage order"
        said.append(f"{top} go straight to the large stage where {_all(rule.direct.when)}")
    return [*said, _rest(rule)]


def _rounds(rule: CalibratedEscalation) -> str:
    if rule.rounds == 1:
        return "in one round"
    return f"in two rounds: first those worth {rule.first_round_factor:g} times as much, or {rule.chunk} where that is more"


def _rest(rule: FusedEscalation | CalibratedEscalation) -> str:
    fitted = "what it scores is ordered by the calibration's fitted order; " if rule.final_order == "fitted" else ""
    return f"{fitted}where the calibration does not hold, the first {rule.safe_top_m} of the small order"


def _accepted(accept: Accept) -> str:
    thresholds = (
        ("margin at least", accept.margin_at_least),
        ("entropy at most", accept.entropy_at_most),
        ("expected loss at most", accept.expected_loss_at_most),
    )
    return " and ".join(f"{name} {value:g}" for name, value in thresholds if value is not None)


def _all(conditions: Sequence[Condition]) -> str:
    return " and ".join(map(_condition, conditions))


def _condition(condition: Condition) -> str:
    name = signal_name(condition)
    values = condition.query_class or condition.script
    if values is not None:
        return f"{name} is {' or '.join(values)}"
    bounds = ((word, getattr(condition, key)) for key, word in _BOUNDS.items())
    return f"{name} is {' and '.join(f'{word} {bound:g}' for word, bound in bounds if bound is not None)}"


def rollout_lines(rules: RolloutRules) -> list[str]:
    """Say how a release is rolled out, always in as many lines; of its smoke queries only how many they are."""
    steps = " -> ".join(f"{step:g}%" for step in rules.steps)
    shadow, prices = rules.shadow, rules.prices
    beside = f"{shadow.in_flight} at once, {shadow.queue} waiting, {shadow.max_bytes} bytes, {shadow.max_ms:g} ms each"
    each = f"at least {rules.min_queries} answers and {rules.min_seconds:g} s at each"
    return [
        f"{steps}, {each}, the first {rules.warm_up} not counted as late or degraded",
        f"beyond the stable release at most {_limit_words(rules.guardrails)}, at alpha {rules.alpha:g}",
        f"{_percent(shadow.share)} of requests scored beside: {beside}",
        f"a pair costs {prices.small:g} at the small stage and {prices.large:g} at the large one",
        f"judged queries {rules.gold or 'none'}, smoke queries {len(rules.smoke) or 'none'}",
    ]


def _limit_words(limits: GuardrailLimits) -> str:
    named = (
        *((name, getattr(limits, name), _percent) for name in ("late", "errors", "fallback", "escalation", "cost")),
        ("ranking loss", limits.ranking_loss, "{:g} nDCG".format),
        ("drift", limits.drift_psi, "PSI {:g}".format),
    )
    return ", ".join(f"{name} {'off' if limit is None else words(limit)}" for name, limit, words in named)


def _percent(share: float) -> str:
    return f"{100 * share:.6g}%"


def level_words(level: LevelSpec) -> str:
    """Say what a load level does otherwise than the release as it stands."""
    if level.stages is not None:
        return "no stage is asked: first-stage order"
    said = [
        *([] if level.depth is None else [depth_words(level.depth)]),
        *([] if level.escalation is None else [escalation_words(level.escalation)]),
        *([] if level.budgets is None else [time_words(level.budgets)]),
    ]
    return "; ".join(said) or "the release as it stands"


def time_words(budgets: Budgets) -> str:
    """Say how the time of a request is split."""
    parts = f"small {budgets.small_ms:g}, large {budgets.large_ms:g}, kept {budgets.reserve_ms:g}"
    return f"{budgets.total_ms:g} ms in all, {parts}"


def tuning_words(tuning: Tuning) -> str:
    """Say what a tuning chose, and where and when."""
    chosen, where = tuning.chosen, tuning.conditions
    batching = chosen.batching
    batches = (
        "one pair a call"
        if isinstance(batching, OnePair)
        else f"batches of {batching.max_total_tokens} tokens and {batching.max_pairs} pairs, {batching.max_wait_ms:g} ms"
    )
    rate = f"{chosen.pairs_per_s.median:.1f} pairs/s ({chosen.pairs_per_s.least:.1f} to {chosen.pairs_per_s.most:.1f})"
    machine = f"{where.cores} cores of {where.cpu}, onnxruntime {where.onnxruntime}, {where.date:%Y-%m-%d}"
    return f"{batches}, {chosen.threads} threads, {rate}; {machine}"


def calibration_lines(artefact: CalibrationArtefact) -> list[str]:
    """Say what a calibration was fitted on, where it holds, and what it found."""
    trained = artefact.trained_on
    where = ", ".join(f"{column}={value}" for column, value in trained.where.items())
    channels = ", ".join(artefact.channels) or "none"
    return [
        f"fitted on {trained.queries} queries, {trained.pairs} pairs{f' ({where})' if where else ''}",
        f"for the top {artefact.k}; first-stage order: {trained.first_stage}",
        f"requests must carry the channels: {channels}",
        f"small: {_scorer(artefact.small)}",
        f"large: {_scorer(artefact.large)}",
        f"holds for {artefact.valid.least_candidates} to {artefact.valid.most_candidates} candidates",
        f"that the large stage helps is {_benefit(artefact.benefit)}",
        *(
            f"price {point.price:g} recovered {point.recovered:.1%} of the difference, aimed at {point.target:.0%}, "
            f"with {point.large_share:.1%} of the pairs, judged by {point.judged_by}"
            for point in artefact.prices
        ),
        *artefact.notes,
    ]


def _scorer(identity: ScorerIdentity) -> str:
    known = identity.fingerprint
    if known is None:
        return f"{identity.name}, {identity.space}; only its name is known"
    told = [str(known[name]) for name in ("model", "revision", "dtype", "engine") if known.get(name) is not None]
    return f"{identity.name}, {identity.space}: {', '.join(told)}"


def _benefit(benefit: Benefit) -> str:
    status = "not shown" if benefit.status == "not-shown" else benefit.status
    if benefit.mean is None or benefit.low is None or benefit.high is None:
        return f"{status}: {benefit.queries} judged queries"
    interval = f"[{benefit.low:+.4f}, {benefit.high:+.4f}]"
    return f"{status}: {benefit.metric} {benefit.mean:+.4f} {interval} over {benefit.queries} judged queries"
