"""Decisions to log and count."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cascade.decision import Action, Decision, DegradedReason, Estimates, Level, Round
from cascade.types import Arm, Dialect, StageCost, StageName

__all__ = ["COST", "decision", "decisions", "round_of"]

COST = StageCost(calls=2, tokens=120, tokens_estimated=False, truncated=3, compute_ms=1.23456)


def round_of(stage: StageName = StageName.SMALL, **changes: Any) -> Round:
    """Return a round that went well, with fields changed."""
    fields: dict[str, Any] = {
        "model": "m",
        "sent": 8,
        "scored": 7,
        "blank": 2,
        "refused": 1,
        "outcome": "ok",
        "code": "",
        "elapsed_ms": 12.34567,
        "cost": COST,
    }
    return Round(stage, **(fields | changes))


def decision(**changes: Any) -> Decision:
    """Return the decision of an ordinary request, with fields changed."""
    fields: dict[str, Any] = {
        "id": "id-1",
        "dialect": Dialect.NATIVE,
        "release": "r1",
        "level": Level(),
        "tenant": None,
        "query_hash": "hash",
        "candidates": 10,
        "top_n": 5,
        "depth": 10,
        "depth_reason": "fixed",
        "action": Action.CLUSTER,
        "estimates": Estimates(k=10, p_first=0.9, margin=0.25, entropy=1.5, expected_loss=0.03125),
        "misfit": None,
        "query_class": None,
        "signals": {"bm25.gap": 0.5},
        "escalated": (3, 1),
        "stage": StageName.LARGE,
        "degraded": (),
        "excluded": 3,
        "rounds": (round_of(), round_of(StageName.LARGE, sent=2, scored=2, blank=0, refused=0)),
        "rank_changes_at_5": 4,
        "deadline_ms": 100.0,
        "total_ms": 30.12345,
        "own_ms": 0.98765,
    }
    return Decision(**(fields | changes))


_rounds = st.builds(
    round_of,
    st.sampled_from((StageName.SMALL, StageName.LARGE)),
    outcome=st.sampled_from(("ok", *DegradedReason)),
    sent=st.integers(0, 50),
    elapsed_ms=st.floats(0, 1e4),
    cost=st.none() | st.just(COST),
)
decisions = st.builds(
    decision,
    dialect=st.sampled_from(Dialect),
    stage=st.sampled_from(StageName),
    tenant=st.none() | st.just("acme"),
    degraded=st.lists(st.sampled_from(DegradedReason), unique=True).map(tuple),
    rounds=st.lists(_rounds, max_size=3).map(tuple),
    depth=st.integers(0, 300),
    arm=st.sampled_from((Arm.STABLE, Arm.CANARY)),
    total_ms=st.floats(0, 1e4),
)
"""Decisions of every dialect, stage, reason and outcome."""
