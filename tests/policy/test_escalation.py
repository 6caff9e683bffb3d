"""Which candidates the large stage scores."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.decision import Action
from cascade.policy.escalation import Known, choose_round
from cascade.policy.escalation_rules import NoEscalation, StaticEscalation

_NAN = np.nan
KNOWN = Known(np.array([2.0, _NAN, 1.0, _NAN, 3.0]), {}, np.full(5, _NAN))


@pytest.mark.parametrize(
    ("top_m", "expected"), [(0, ()), (1, (4,)), (2, (4, 0)), (3, (4, 0, 2)), (99, (4, 0, 2, 1, 3))]
)
def test_the_static_rule_takes_the_head_of_the_small_order(top_m: int, expected: tuple[int, ...]) -> None:
    """The top m of the small order come first, then what it has not scored in first-stage order."""
    choice = choose_round(StaticEscalation(kind="static", top_m=top_m), KNOWN, None)
    assert choice.indices == expected
    assert choice.action is Action.STATIC
    assert not choice.more


def test_no_escalation_takes_nothing() -> None:
    """Escalation none sends nothing, whatever the order."""
    choice = choose_round(NoEscalation(), KNOWN, None)
    assert choice.indices == ()
    assert choice.action is Action.NONE
