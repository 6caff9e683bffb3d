"""What is counted and timed, under which labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cascade import __version__
from cascade.cache.store import LostReason, WriteDrop
from cascade.decision import Action, Decision, DegradedReason
from cascade.rollout.activation import ActivationStep
from cascade.rollout.guardrails.names import GuardrailName
from cascade.rollout.shadow.outcome import ShadowOutcome
from cascade.telemetry.arm_metrics import ArmMetrics
from cascade.telemetry.listener_metrics import HandshakeFailure
from cascade.telemetry.metrics import CONTENT_TYPE, Metrics
from cascade.telemetry.record_log import DropReason
from cascade.telemetry.trace_log import SpanDrop
from cascade.telemetry.work import Counted
from cascade.types import (
    Arm,
    BreakerState,
    Denied,
    Dialect,
    Exclusion,
    Lane,
    LevelReason,
    RetryOutcome,
    StageCost,
    StageName,
    Verdict,
)
from tests.telemetry.decisions import decision, decisions, round_of
from tests.telemetry.every_series import LISTENERS, every_series

_STAGES = {"small", "large"}
_ARMS = {"stable", "canary"}
_LISTENERS = set(LISTENERS)
_REFUSALS = {"400", "401", "403", "408", "413", "415", "422", "429", "503"}
_LABELS: Mapping[str, Mapping[str, set[str]]] = {
    "cascade_requests": {"dialect": set(Dialect), "stage": set(StageName)},
    "cascade_degraded": {"reason": set(DegradedReason)},
    "cascade_rejected": {"dialect": set(Dialect), "status": _REFUSALS},
    "cascade_rounds": {"stage": _STAGES, "outcome": {"ok", *DegradedReason}},
    "cascade_pairs": {"stage": _STAGES},
    "cascade_tokens": {"stage": _STAGES},
    "cascade_truncated_pairs": {"stage": _STAGES},
    "cascade_windows": {"stage": _STAGES},
    "cascade_padding_tokens": {"stage": _STAGES},
    "cascade_excluded_documents": {"stage": _STAGES, "why": set(Exclusion)},
    "cascade_stage_seconds": {"stage": _STAGES},
    "cascade_retries": {"stage": _STAGES, "outcome": set(RetryOutcome)},
    "cascade_breaker_changes": {"stage": _STAGES, "state": set(BreakerState)},
    "cascade_breaker_state": {"stage": _STAGES},
    "cascade_upstream_limit_texts": {"stage": _STAGES},
    "cascade_upstream_in_flight_texts": {"stage": _STAGES},
    "cascade_upstream_calls_waiting": {"stage": _STAGES},
    "cascade_stage_queue_seconds": {"stage": _STAGES},
    "cascade_stage_room_seconds": {"stage": _STAGES},
    "cascade_stage_compute_seconds": {"stage": _STAGES},
    "cascade_query_tokens": {"stage": _STAGES, "counted": set(Counted)},
    "cascade_pair_tokens": {"stage": _STAGES, "counted": set(Counted)},
    "cascade_document_windows": {"stage": _STAGES},
    "cascade_batch_inputs": {"stage": _STAGES},
    "cascade_batch_padding_ratio": {"stage": _STAGES},
    "cascade_uptime_seconds": {},
    "cascade_start_time_seconds": {},
    "cascade_order_repairs": {},
    "cascade_prefix_tokens": {},
    "cascade_candidates": {},
    "cascade_actions": {"action": set(Action)},
    "cascade_margin": {},
    "cascade_rank_overlap_ratio": {},
    "cascade_rank_displacement_places": {},
    "cascade_calibration_drift_psi": {"of": {"score", "margin"}},
    "cascade_calibration_drift_answers": {"of": {"score", "margin"}},
    "cascade_connections": {"listener": _LISTENERS},
    "cascade_connections_refused": {"listener": _LISTENERS, "why": {"all", "client"}},
    "cascade_tls_handshakes_failed": {"listener": _LISTENERS, "why": set(HandshakeFailure)},
    "cascade_tls_read": {"listener": _LISTENERS, "result": {"ok", "failed"}},
    "cascade_tls_expiry_timestamp_seconds": {"listener": _LISTENERS},
    "cascade_spans_exported": {},
    "cascade_spans_dropped": {"reason": set(SpanDrop)},
    "cascade_request_seconds": {},
    "cascade_own_seconds": {},
    "cascade_left_seconds": {},
    "cascade_depth": {},
    "cascade_escalated": {},
    "cascade_internal_faults": {},
    "cascade_abandoned": {},
    "cascade_beside": {"outcome": {"ok", "dropped", *DegradedReason}},
    "cascade_records": {},
    "cascade_records_dropped": {"reason": set(DropReason)},
    "cascade_in_flight": {},
    "cascade_stage_unusable": {"stage": _STAGES},
    "cascade_upstream_waiting": {"stage": _STAGES},
    "cascade_upstream_signal_stale": {"stage": _STAGES},
    "cascade_upstream_signal_silent": {"stage": _STAGES},
    "cascade_safe_mode": {},
    "cascade_evidence_mismatch": {"kind": {"certificate", "report"}},
    "cascade_cache_lookups": {
        "stage": _STAGES,
        "arm": {"stable", "canary", "shadow"},
        "outcome": {"hit", "shared", "miss", "fault"},
    },
    "cascade_cache_shared_wait_seconds": {},
    "cascade_cache_evictions": {"why": set(LostReason)},
    "cascade_cache_write_drops": {"why": set(WriteDrop)},
    "cascade_cache_scores": {},
    "cascade_cache_bytes": {},
    "cascade_cache_breaker_open": {},
    "cascade_level": {},
    "cascade_level_pinned": {},
    "cascade_level_steps": {"why": set(LevelReason)},
    "cascade_level_answers": {"level": {"0"}},
    "cascade_beside_paused": {},
    "cascade_admission": {"verdict": set(Verdict), "lane": set(Lane)},
    "cascade_tenant_requests": {"verdict": set(Verdict), "tenant": {"acme", "other"}},
    "cascade_queue_seconds": {"lane": set(Lane)},
    "cascade_queue_length": {"lane": set(Lane)},
    "cascade_seats_held": {"lane": set(Lane)},
    "cascade_denied": {"listener": _LISTENERS, "why": set(Denied)},
    "cascade_keys_read": {"listener": _LISTENERS, "result": {"ok", "failed"}},
    "cascade_keys": {"listener": _LISTENERS},
    "cascade_release_info": {
        "release": {"r1"},
        "digest": {"sha256:0"},
        "version": {__version__},
        "arm": {"stable"},
    },
    "cascade_arm_requests": {"arm": _ARMS, "outcome": {"answered", "refused"}},
    "cascade_arm_late": {"arm": _ARMS},
    "cascade_arm_abandoned": {"arm": _ARMS},
    "cascade_arm_degraded": {"arm": _ARMS},
    "cascade_arm_duration_seconds": {"arm": _ARMS},
    "cascade_arm_large_pairs": {"arm": _ARMS},
    "cascade_arm_candidates": {"arm": _ARMS},
    "cascade_arm_share": {"arm": _ARMS},
    "cascade_rollout_step": {},
    "cascade_guardrail": {"name": set(GuardrailName)},
    "cascade_shadow": {"outcome": set(ShadowOutcome)},
    "cascade_activations": {"outcome": {"swapped", "aborted", *ActivationStep}},
    "cascade_rollouts": {"outcome": {"completed", "rolled_back", "aborted", "refused"}},
    "cascade_rollout_state_unkept": {},
    "cascade_desired_unusable": {},
    "cascade_start_passed_over": {},
}
"""Every metric, with every value that each of its labels may have."""


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return a sample of the registry, None where it is not there."""
    return metrics.registry.get_sample_value(name, labels)


def _samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return all samples, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def _moved(before: Mapping[Any, float], after: Mapping[Any, float]) -> set[str]:
    """Return the names of the samples that changed, buckets aside."""
    return {key[0] for key, value in after.items() if value != before.get(key, 0.0) and "_bucket" not in key[0]}


def _roll_out(arms: ArmMetrics) -> None:
    """Show all that a rollout can show."""
    arms.serve([("r1", "sha256:0", Arm.STABLE)], 0.0)
    arms.rollout(0, 0.0, dict.fromkeys(GuardrailName, 0))


@settings(deadline=None, max_examples=50)
@given(st.lists(decisions, max_size=5))
def test_every_label_has_a_closed_set_of_values(made: list[Decision]) -> None:
    """Whatever is decided, no series appears beyond those known beforehand."""
    metrics = every_series()
    _roll_out(metrics.arms)
    for item in made:
        metrics.observe(item)
    seen: dict[str, dict[str, set[str]]] = {}
    for family in metrics.registry.collect():
        labels = seen.setdefault(family.name, {})
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    labels.setdefault(label, set()).add(value)
    assert seen == _LABELS


def test_every_series_is_there_before_the_first_request() -> None:
    """A rate over a counter that appears late would miss its first event."""
    names = {name for name, _ in _samples(Metrics())}
    metrics = Metrics()
    for dialect in Dialect:
        metrics.observe(decision(dialect=dialect, degraded=tuple(DegradedReason)))
    assert {name for name, _ in _samples(metrics)} == names
    assert _value(Metrics(), "cascade_degraded_total", reason="stage_timeout") == 0.0


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("cascade_activations_total", {"swapped", "aborted", *ActivationStep}),
        ("cascade_shadow_total", set(ShadowOutcome)),
        ("cascade_rollouts_total", {"completed", "rolled_back", "aborted", "refused"}),
    ],
)
def test_every_outcome_of_a_rollout_is_there_at_nought_and_is_counted(name: str, outcomes: set[str]) -> None:
    """The lists are written down in telemetry, which knows nothing of rollouts: they are those of its enumerations."""
    metrics = Metrics()
    shown = {dict(labels)["outcome"]: value for (each, labels), value in _samples(metrics).items() if each == name}
    assert shown == dict.fromkeys(outcomes, 0.0)
    count = {
        "cascade_activations_total": metrics.arms.activated,
        "cascade_shadow_total": metrics.arms.shadowed,
        "cascade_rollouts_total": metrics.arms.rolled_out,
    }[name]
    for outcome in outcomes:
        count(outcome)
        assert _value(metrics, name, outcome=outcome) == 1


def test_what_an_embedded_stage_ran_besides_is_counted() -> None:
    """Windows beyond the first, and padding, by stage."""
    metrics = Metrics()
    made = decision()
    cost = StageCost(3, 90, tokens_estimated=False, truncated=0, windows=4, padding=7)
    metrics.observe(replace(made, rounds=(replace(made.rounds[0], cost=cost),)))
    for name, count in (("cascade_windows_total", 4), ("cascade_padding_tokens_total", 7)):
        assert _value(metrics, name, stage=made.rounds[0].stage) == count


def test_a_healthy_request_moves_the_counters_of_what_was_decided() -> None:
    """Requests, rounds, pairs, tokens, truncations and exclusions are counted by stage."""
    metrics = Metrics()
    metrics.observe(decision())
    assert _value(metrics, "cascade_requests_total", dialect="native", stage="large") == 1
    assert _value(metrics, "cascade_requests_total", dialect="native", stage="small") == 0
    assert _value(metrics, "cascade_rounds_total", stage="small", outcome="ok") == 1
    assert _value(metrics, "cascade_rounds_total", stage="large", outcome="ok") == 1
    assert (
        _value(metrics, "cascade_pairs_total", stage="small"),
        _value(metrics, "cascade_pairs_total", stage="large"),
    ) == (7, 2)
    assert _value(metrics, "cascade_tokens_total", stage="small") == 120
    assert _value(metrics, "cascade_truncated_pairs_total", stage="large") == 3
    assert _value(metrics, "cascade_excluded_documents_total", stage="small", why="blank") == 2
    assert _value(metrics, "cascade_excluded_documents_total", stage="small", why="refused") == 1
    assert _value(metrics, "cascade_excluded_documents_total", stage="large", why="blank") == 0


def test_a_request_is_timed_as_a_whole_in_its_own_part_and_in_what_was_left() -> None:
    """The histograms hold seconds: the request's, our own overhead, the time left, and each round's."""
    metrics = Metrics()
    metrics.observe(decision(total_ms=30.0, own_ms=2.0, deadline_ms=100.0))
    for name, seconds in (("request", 0.03), ("own", 0.002), ("left", 0.07)):
        assert _value(metrics, f"cascade_{name}_seconds_count") == 1
        assert _value(metrics, f"cascade_{name}_seconds_sum") == pytest.approx(seconds)
    assert _value(metrics, "cascade_own_seconds_bucket", le="0.001") == 0
    assert _value(metrics, "cascade_own_seconds_bucket", le="0.002") == 1
    assert _value(metrics, "cascade_stage_seconds_sum", stage="small") == pytest.approx(0.01234567)


def test_a_request_that_was_refused_counts_its_rounds_alone() -> None:
    """What the stages did is counted; the request was not answered, so it is neither counted, degraded nor timed."""
    metrics = Metrics()
    before = _samples(metrics)
    metrics.observe(decision(degraded=(DegradedReason.STAGE_TIMEOUT,)), answered=False)
    moved = _moved(before, _samples(metrics))
    assert "cascade_rounds_total" in moved
    assert not [name for name in moved if name.startswith(("cascade_requests", "cascade_request_s", "cascade_degr"))]
    assert not [name for name in moved if name.startswith(("cascade_own", "cascade_left", "cascade_depth"))]


def test_a_request_past_its_deadline_has_nothing_left() -> None:
    """Time left is never negative."""
    metrics = Metrics()
    metrics.observe(decision(total_ms=120.0, deadline_ms=100.0))
    assert _value(metrics, "cascade_left_seconds_sum") == 0.0


def test_depth_and_escalated_candidates_are_distributions() -> None:
    """Zero has a bucket of its own."""
    metrics = Metrics()
    metrics.observe(decision(depth=30, escalated=(1, 2, 3)))
    metrics.observe(decision(depth=0, escalated=()))
    for name, total in (("depth", 30.0), ("escalated", 3.0)):
        assert _value(metrics, f"cascade_{name}_sum") == total
        assert _value(metrics, f"cascade_{name}_bucket", le="0.0") == 1


def test_a3_each_reason_of_a_degraded_answer_is_counted() -> None:
    """An answer with two reasons counts under both."""
    metrics = Metrics()
    metrics.observe(decision(degraded=(DegradedReason.STAGE_TIMEOUT, DegradedReason.STAGE_OVERLOADED)))
    counts = {str(reason): _value(metrics, "cascade_degraded_total", reason=reason) for reason in DegradedReason}
    assert {reason for reason, count in counts.items() if count} == {"stage_timeout", "stage_overloaded"}


def test_a_failed_round_counts_its_outcome_and_time_but_no_pairs() -> None:
    """What did not count costs time and nothing else that is known."""
    metrics = Metrics()
    before = _samples(metrics)
    metrics.observe(decision(rounds=(round_of(outcome="stage_timeout", code="deadline", scored=0, cost=None),)))
    assert _value(metrics, "cascade_rounds_total", stage="small", outcome="stage_timeout") == 1
    assert _value(metrics, "cascade_stage_seconds_count", stage="small") == 1
    assert not _moved(before, _samples(metrics)) & {
        "cascade_pairs_total",
        "cascade_tokens_total",
        "cascade_truncated_pairs_total",
        "cascade_excluded_documents_total",
    }


def test_a_round_that_timed_out_as_it_waited_counts_as_waiting_for_all_of_its_time() -> None:
    """Also where nothing of it was begun: else a queue that everything times out in would look like no queue."""
    metrics = Metrics()
    fields: dict[str, Any] = {
        "outcome": "stage_timeout",
        "code": "deadline",
        "scored": 0,
        "cost": None,
        "elapsed_ms": 50.0,
    }
    metrics.observe(decision(rounds=(round_of(sent=0, queue_ms=50.0, **fields), round_of(queue_ms=20.0, **fields))))
    metrics.observe(decision(rounds=(round_of(**fields),)))
    assert _value(metrics, "cascade_stage_queue_seconds_sum", stage="small") == pytest.approx(0.07)
    assert _value(metrics, "cascade_stage_queue_seconds_count", stage="small") == 2
    assert _value(metrics, "cascade_stage_seconds_sum", stage="small") == pytest.approx(0.15)
    assert _value(metrics, "cascade_stage_compute_seconds_count", stage="small") == 0


def test_a_round_that_failed_counts_its_wait_for_room() -> None:
    """Also where it never left: else a line that everything times out in would look like no line."""
    metrics = Metrics()
    fields: dict[str, Any] = {"outcome": "stage_timeout", "scored": 0, "cost": None, "elapsed_ms": 50.0}
    metrics.observe(decision(rounds=(round_of(sent=0, code="waiting_for_room", room_ms=50.0, **fields),)))
    metrics.observe(decision(rounds=(round_of(code="deadline", room_ms=30.0, queue_ms=20.0, **fields),)))
    for name, seconds, count in (("room", 0.08, 2), ("queue", 0.02, 1)):
        assert _value(metrics, f"cascade_stage_{name}_seconds_sum", stage="small") == pytest.approx(seconds)
        assert _value(metrics, f"cascade_stage_{name}_seconds_count", stage="small") == count
    assert _value(metrics, "cascade_stage_seconds_sum", stage="small") == pytest.approx(0.1)
    assert _value(metrics, "cascade_stage_seconds_count", stage="small") == 2


def test_a_round_that_was_never_sent_is_counted_and_not_timed() -> None:
    """A deadline too short for a call must not make the stage look fast."""
    metrics = Metrics()
    metrics.observe(
        decision(rounds=(round_of(sent=0, outcome="deadline_too_short", code="not_sent", elapsed_ms=0.0, cost=None),))
    )
    assert _value(metrics, "cascade_rounds_total", stage="small", outcome="deadline_too_short") == 1
    assert _value(metrics, "cascade_stage_seconds_count", stage="small") == 0


@pytest.mark.parametrize("status", [400, 408, 413, 415, 422, 503])
def test_a_refused_request_counts_by_dialect_and_status_alone(status: int) -> None:
    """A request that got no ranking moves one counter."""
    metrics = Metrics()
    before = _samples(metrics)
    metrics.reject(Dialect.TEI, status)
    assert _value(metrics, "cascade_rejected_total", dialect="tei", status=str(status)) == 1
    assert _moved(before, _samples(metrics)) == {"cascade_rejected_total"}


def test_faults_are_counted_without_their_text() -> None:
    """An exception moves one counter, which has no label."""
    metrics = Metrics()
    before = _samples(metrics)
    metrics.count_fault(ValueError("kingfisher-5f3a"))
    assert _value(metrics, "cascade_internal_faults_total") == 1
    assert _moved(before, _samples(metrics)) == {"cascade_internal_faults_total"}
    assert b"kingfisher" not in metrics.exposition()


def test_what_is_shown_of_releases_is_what_is_active_now() -> None:
    """Serving others takes the series of those before away, and the share of each arm follows."""
    metrics = Metrics()
    metrics.arms.serve([("r1", "sha256:1", Arm.STABLE), ("r2", "sha256:2", Arm.CANARY)], 0.25)
    assert _value(metrics, "cascade_release_info", **_info("r1", "1", "stable")) == 1
    assert _value(metrics, "cascade_release_info", **_info("r2", "2", "canary")) == 1
    assert [_value(metrics, "cascade_arm_share", arm=arm) for arm in ("stable", "canary")] == [0.75, 0.25]
    metrics.arms.serve([("r2", "sha256:2", Arm.STABLE)], 0.0)
    shown = [dict(labels) for name, labels in _samples(metrics) if name[0:20] == "cascade_release_info"]
    assert shown == [_info("r2", "2", "stable")]
    assert [_value(metrics, "cascade_arm_share", arm=arm) for arm in ("stable", "canary")] == [1.0, 0.0]


def _info(release: str, digest: str, arm: str) -> dict[str, str]:
    return {"release": release, "digest": f"sha256:{digest}", "version": __version__, "arm": arm}


def test_an_arm_counts_its_decided_requests_its_late_and_degraded_ones_and_their_work() -> None:
    """Also those that were refused because their caller wanted an error; none of another arm's."""
    metrics = Metrics()
    late = decision(arm=Arm.CANARY, total_ms=100.5, degraded=(DegradedReason.STAGE_TIMEOUT,), candidates=7)
    metrics.observe(late)
    metrics.observe(replace(late, total_ms=100.0, degraded=(), rounds=()), answered=False)
    told = {
        name.removeprefix("cascade_arm_"): value
        for (name, labels), value in _samples(metrics).items()
        if name.startswith("cascade_arm_") and "_bucket" not in name and dict(labels).get("outcome") != "refused"
        if dict(labels)["arm"] == "canary"
    }
    assert told == {
        "requests_total": 1, "abandoned_total": 0, "late_total": 1, "degraded_total": 1, "duration_seconds_count": 2,
        "duration_seconds_sum": pytest.approx(0.2005), "large_pairs_total": 2, "candidates_total": 14,
    }  # fmt: skip
    assert _value(metrics, "cascade_arm_requests_total", arm="canary", outcome="refused") == 1
    assert _value(metrics, "cascade_arm_requests_total", arm="stable", outcome="answered") == 0


def test_the_step_and_the_guardrails_are_shown_while_a_rollout_is_under_way() -> None:
    """After it there is no step, and no guardrail any more."""
    metrics = Metrics()
    metrics.arms.rollout(1, 0.05, {"late": -1, "errors": 1})
    assert _value(metrics, "cascade_rollout_step") == 1
    assert _value(metrics, "cascade_arm_share", arm="canary") == 0.05
    shown = {dict(labels)["name"]: value for (name, labels), value in _samples(metrics).items() if "guardrail" in name}
    assert shown == {"late": -1, "errors": 1}
    metrics.arms.rollout(None, 0.0, {})
    assert _value(metrics, "cascade_rollout_step") == -1
    assert not [name for name, _ in _samples(metrics) if "guardrail" in name]


def test_a_state_that_cannot_be_kept_is_shown_until_it_is() -> None:
    """A gauge of one series, at nought from the start."""
    metrics = Metrics()
    shown = [_value(metrics, "cascade_rollout_state_unkept")]
    for good in (False, True):
        metrics.arms.state_kept(good)
        shown.append(_value(metrics, "cascade_rollout_state_unkept"))
    assert shown == [0, 1, 0]


def test_two_sets_of_metrics_share_nothing() -> None:
    """Each has a registry of its own."""
    one, other = Metrics(), Metrics()
    one.observe(decision())
    assert _value(other, "cascade_requests_total", dialect="native", stage="large") == 0


@settings(deadline=None, max_examples=20)
@given(st.lists(decisions, max_size=3))
def test_the_exposition_parses_and_says_what_the_registry_holds(made: list[Decision]) -> None:
    """The text that is scraped is well formed, and every metric in it has a help text."""
    metrics = Metrics()
    metrics.arms.serve([("r1", "sha256:0", Arm.STABLE)], 0.0)
    for item in made:
        metrics.observe(item)
    families = list(text_string_to_metric_families(metrics.exposition().decode()))
    read = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    assert read == pytest.approx(_samples(metrics))
    assert all(family.documentation for family in families)
    assert not any(name.endswith("_created") for name, _ in read)
    assert CONTENT_TYPE.startswith("text/plain; version=")
