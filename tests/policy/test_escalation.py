"""Which candidates the large stage scores."""

from __future__ import annotations

import pytest

from cascade.policy.escalation import choose_escalated
from cascade.policy.release import NoEscalation, StaticEscalation


@pytest.mark.parametrize(("top_m", "expected"), [(0, ()), (1, (4,)), (2, (4, 0)), (3, (4, 0, 2)), (99, (4, 0, 2))])
def test_the_static_rule_takes_the_head_of_the_order(top_m: int, expected: tuple[int, ...]) -> None:
    """The top m come in the order given, all of it where there are fewer, none for zero."""
    assert choose_escalated(StaticEscalation(kind="static", top_m=top_m), [4, 0, 2]) == expected


def test_no_escalation_takes_nothing() -> None:
    """Escalation none sends nothing, whatever the order."""
    assert choose_escalated(NoEscalation(), [4, 0, 2]) == ()
