"""What the mode of a release asks of it."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import parse_release, policy_digest
from tests.scenario import release_data


def _told(**changes: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_release(release_data(**changes))
    return str(raised.value)


def test_a_release_is_of_mode_cascade_unless_it_says_otherwise() -> None:
    """The mode is part of what a release does: another one is another policy."""
    assert parse_release(release_data()).mode == "cascade"
    assert parse_release(release_data(mode="observe")).mode == "observe"
    assert policy_digest(release_data(mode="observe")) != policy_digest(release_data())


def test_an_unknown_mode_is_refused_by_name() -> None:
    """The message says what there is."""
    assert _told(mode="shadow") == "mode: Input should be 'cascade' or 'observe'"


@pytest.mark.parametrize("missing", ["small", "large"])
def test_observing_takes_both_stages(missing: str) -> None:
    """One answers, the other is observed."""
    stages = release_data()["stages"]
    del stages[missing]
    assert "mode observe scores with a small and a large stage; name both" in _told(
        mode="observe", stages=stages, escalation="none"
    )


def test_an_observing_release_may_escalate_nothing() -> None:
    """Its large stage answers all the same, which in mode cascade it would not."""
    assert parse_release(release_data(mode="observe", escalation="none")).mode == "observe"
    assert "a large stage that nothing escalates to" in _told(escalation="none")
