"""The ranking guardrail on losses of replayed releases, on a planted table; its page is of real ones."""

from __future__ import annotations

import numpy as np

from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import NoEscalation, StaticEscalation
from cascade.policy.release import Limits, RolloutRules
from cascade.replay.policy import Policy
from cascade.replay.queries import replayed_part
from cascade.rollout.guardrails.names import GuardrailVerdict
from cascade.rollout.guardrails.wager import least_to_pass
from evals import rollout_losses
from tests.fit.planted import ROLES, planted_table

_QUERIES = replayed_part(planted_table(40, 30), ROLES, 10, Gain.LINEAR, silver=True).queries


def _policy(escalation: NoEscalation | StaticEscalation) -> Policy:
    return Policy(escalation, FixedDepth(depth=30), Limits())


_NONE, _ALL = _policy(NoEscalation()), _policy(StaticEscalation(kind="static", top_m=30))


def test_what_serves_the_judges_order_loses_nothing() -> None:
    """Gains are the large stage's own: its whole order is the best there is, and another loses what nDCG says."""
    lost = rollout_losses.losses(_QUERIES, _ALL, _NONE)
    assert lost.shape == (40,)
    assert (lost >= 0.0).all()
    assert lost.mean() > 0.0
    assert np.array_equal(rollout_losses.losses(_QUERIES, _NONE, _ALL), -lost)


def test_a_run_ends_with_what_the_losses_show() -> None:
    """The same order passes with the least that can, what loses fails, and a mean at the limit tells nothing."""
    same = rollout_losses.losses(_QUERIES, _ALL, _ALL)
    assert rollout_losses.watch(same, 0.01, 0) == (
        GuardrailVerdict.PASS,
        least_to_pass(0.01, RolloutRules().alpha),
    )
    lost = rollout_losses.losses(_QUERIES, _ALL, _NONE)
    verdict, pairs = rollout_losses.watch(lost, 0.01, 0)
    assert verdict is GuardrailVerdict.FAIL
    assert pairs < 1000
    assert rollout_losses.watch(np.full(8, 0.01), 0.01, 0)[0] is GuardrailVerdict.INCONCLUSIVE


def test_the_page_has_a_row_for_each_pair_and_limit() -> None:
    """Runs of a row are counted by verdict, none is left out."""
    lines = list(rollout_losses.page(_QUERIES, _ALL, runs=2))
    rows = [line.split("|")[1:-1] for text in lines for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 2 * len(rollout_losses.PAIRS)
    assert all(sum(int(cell) for cell in row[6:9]) == 2 for row in rows)
