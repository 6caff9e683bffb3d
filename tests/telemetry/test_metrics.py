"""What is counted and timed, under which labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cascade import __version__
from cascade.telemetry.metrics import CONTENT_TYPE, Metrics
from cascade.telemetry.record_log import DropReason
from cascade.types import (
    BreakerState,
    Decision,
    DegradedReason,
    Denied,
    Dialect,
    Exclusion,
    Lane,
    LevelReason,
    RetryOutcome,
    StageName,
    Verdict,
)
from tests.telemetry.decisions import decision, decisions, round_of
from tests.telemetry.every_series import LISTENERS, every_series

_STAGES = {"small", "large"}
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
    "cascade_excluded_documents": {"stage": _STAGES, "why": set(Exclusion)},
    "cascade_stage_seconds": {"stage": _STAGES},
    "cascade_retries": {"stage": _STAGES, "outcome": set(RetryOutcome)},
    "cascade_breaker_changes": {"stage": _STAGES, "state": set(BreakerState)},
    "cascade_breaker_state": {"stage": _STAGES},
    "cascade_upstream_limit_texts": {"stage": _STAGES},
    "cascade_upstream_in_flight_texts": {"stage": _STAGES},
    "cascade_upstream_calls_waiting": {"stage": _STAGES},
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
    "cascade_release_info": {"release": {"r1"}, "digest": {"sha256:0"}, "version": {__version__}},
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


@settings(deadline=None, max_examples=50)
@given(st.lists(decisions, max_size=5))
def test_every_label_has_a_closed_set_of_values(made: list[Decision]) -> None:
    """Whatever is decided, no series appears beyond those known beforehand."""
    metrics = every_series()
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
    metrics.count_fault(ValueError("canary-5f3a"))
    assert _value(metrics, "cascade_internal_faults_total") == 1
    assert _moved(before, _samples(metrics)) == {"cascade_internal_faults_total"}
    assert b"canary" not in metrics.exposition()


def test_one_release_is_active_at_a_time() -> None:
    """Activating another release takes the series of the one before away."""
    metrics = Metrics()
    metrics.activate("r1", "sha256:1")
    metrics.activate("r2", "sha256:2")
    shown = [
        (dict(labels)["release"], value)
        for (name, labels), value in _samples(metrics).items()
        if name == "cascade_release_info"
    ]
    assert shown == [("r2", 1.0)]
    assert _value(metrics, "cascade_release_info", release="r2", digest="sha256:2", version=__version__) == 1


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
    metrics.activate("r1", "sha256:0")
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
