"""Records of a canary whose share rises in steps: what they say of a release is what serving it to all would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pytest

from cascade.errors import ConfigError
from cascade.policy.release import release_digest
from cascade.replay.logged.gathered import gather_logged
from cascade.replay.logged.outcomes import Outcomes
from cascade.replay.logged.sources import left_out, shares_at
from cascade.rollout.arms import place
from tests.replay.bandit import BY_CLASS, DEEP, OTHER, SHALLOW, asked_report, outcomes_of, worth_of
from tests.replay.served import Query, Serving, made_queries, orders_of, traffic

_QUERIES: Final = made_queries(1300, seed=5)
_STABLE: Final = replace(SHALLOW, sample=1.0)
_SALT: Final = release_digest(DEEP.data)
_STEPS: Final = ((0, 0.0), (60, 0.01), (120, 0.05), (300, 0.5))
"""From which query on the canary has which share."""


def _share(query: Query) -> float:
    return [share for begins, share in _STEPS if query.number >= begins][-1]


def _arm(query: Query) -> int:
    return int(place(query.text, _SALT) < _share(query))


def _probability(query: Query, arm: int) -> float:
    return _share(query) if arm else 1.0 - _share(query)


def _as_recorded(serving: Serving) -> Any:
    return replace(serving.arm, share=None)


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcomes]:
    """Give the records of a rollout and what came of its answers."""
    served = traffic(_QUERIES, (_STABLE, DEEP), assign=_arm, probability=_probability)
    return served.write(tmp_path_factory.mktemp("rollout") / "r"), outcomes_of(served, seed=4)


def _asked(rollout: tuple[Path, Outcomes], target: Serving) -> dict[str, Any]:
    arms = (_as_recorded(_STABLE), _as_recorded(DEEP))
    return asked_report(rollout[0], target, outcomes=rollout[1], arms=arms)


@pytest.mark.parametrize("target", [SHALLOW, DEEP, BY_CLASS])
def test_ips_over_a_canary_gives_what_serving_all_would(rollout: tuple[Path, Outcomes], target: Serving) -> None:
    """The truth lies in the interval, for either release and for one that does what either does, by query class."""
    told = _asked(rollout, target)["reward"]
    assert told["refused"] == []
    used = [query for query in _QUERIES if _share(query) >= 0.05]
    truth = np.mean([worth_of(query, order) for query, order in zip(used, orders_of(used, target), strict=True)])
    for name in ("ips", "snips"):
        low, high = told["intervals"][name]
        assert low <= truth <= high, name
        assert high - low < 0.25
    assert told["weights"]["mean"] == pytest.approx(1.0, abs=3 * told["weights"]["standard_error"] + 1e-9)


def test_each_action_has_the_odds_of_its_moment(rollout: tuple[Path, Outcomes]) -> None:
    """The share of the release that takes it, or all where both do."""
    arms = (_as_recorded(_STABLE), _as_recorded(DEEP))
    rows = gather_logged([rollout[0]], DEEP.decider, arms, 10).rows
    by_id = {f"id-{query.number}": query for query in _QUERIES}
    for row in rows:
        query = by_id[row.decision_id]
        assert row.propensity == pytest.approx(_probability(query, row.arm))
        assert row.is_covered is (row.arm == 1)
        assert row.sample == 1.0
    assert {round(row.propensity, 9) for row in rows} == {0.05, 0.95, 0.5}


def test_the_canary_alone_would_mislead(rollout: tuple[Path, Outcomes]) -> None:
    """The two releases differ by more than the intervals are wide: what was logged is the one for most of the time."""
    told = {target.release.release: _asked(rollout, target)["reward"] for target in (SHALLOW, DEEP)}
    assert told["deep"]["snips"] - told["shallow"]["snips"] > 0.08
    assert told["shallow"]["intervals"]["snips"][1] < told["deep"]["intervals"]["snips"][0]


def test_moments_that_explore_too_little_are_left_out_and_counted(rollout: tuple[Path, Outcomes]) -> None:
    """Before the split, and while a release had less than 5%, whatever was done then."""
    told = _asked(rollout, DEEP)
    assert (told["counts"]["unsplit"], told["counts"]["thin"], told["counts"]["used"]) == (60, 60, 1180)
    assert told["conditions"]["shares"] == "of the records"
    mean = (180 * 0.05 + 1000 * 0.5) / 1180
    assert [arm["share"] for arm in told["arms"]] == pytest.approx([1 - mean, mean])
    assert told["arms"][1]["records"] == sum(_arm(query) for query in _QUERIES[120:])


def test_a_target_that_neither_does_is_refused(rollout: tuple[Path, Outcomes]) -> None:
    """As with any split."""
    assert any(why.startswith("support: ") for why in _asked(rollout, OTHER)["reward"]["refused"])


def test_shares_that_the_records_tell_wrongly_are_refused(tmp_path: Path, rollout: tuple[Path, Outcomes]) -> None:
    """A canary of half the traffic that is told as one of a fifth."""
    lines = [orjson.loads(line) for line in rollout[0].read_bytes().splitlines()]
    for line in lines:
        if line.get("propensity") == 0.5:
            line["propensity"] = 0.2 if line["arm"] == "canary" else 0.8
    wrong = tmp_path / "r"
    wrong.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    refused = _asked((wrong, rollout[1]), DEEP)["reward"]["refused"]
    assert refused[0].startswith("shares: shallow 0.")
    assert "the split that the records tell" in refused[0]


def test_a_third_release_of_a_split_is_refused(tmp_path: Path, rollout: tuple[Path, Outcomes]) -> None:
    """Whose the rest of the traffic was is not known of the records of the two."""
    other = traffic(_QUERIES[:10], [OTHER], assign=lambda query: 0, probability=lambda query, arm: 0.5)
    both = tmp_path / "r"
    both.write_bytes(rollout[0].read_bytes() + other.write(tmp_path / "other").read_bytes().replace(b'"id-', b'"x-'))
    refused = _asked((both, rollout[1]), DEEP)["reward"]["refused"]
    assert refused[0].startswith("one split: 10 records are of traffic that was split with a release that is not named")


def test_shadows_are_no_answers(tmp_path: Path) -> None:
    """They are counted, and nothing is estimated from them."""
    path = traffic(_QUERIES[:5], [SHALLOW], assign=lambda query: 0).write(tmp_path / "r")
    last = orjson.loads(path.read_bytes().splitlines()[-1]) | {"arm": "shadow", "of": "id-3", "decision_id": "s"}
    path.write_bytes(path.read_bytes() + orjson.dumps(last) + b"\n")
    counts = asked_report(path, SHALLOW)["counts"]
    assert (counts["records"], counts["shadows"]) == (5, 1)


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        ((_as_recorded(SHALLOW),), "without a share, two are named"),
        ((_as_recorded(SHALLOW), _as_recorded(DEEP), _as_recorded(OTHER)), "without a share, two are named"),
        ((_as_recorded(SHALLOW), DEEP.arm), "a share stands with every release or with none"),
        ((_as_recorded(SHALLOW), _as_recorded(SHALLOW)), "one release is named twice"),
    ],
)
def test_what_is_no_split_is_refused(tmp_path: Path, arms: tuple[Any, ...], told: str) -> None:
    """Before a record is read."""
    with pytest.raises(ConfigError, match=told):
        asked_report(tmp_path / "none", DEEP, arms=arms)


def test_records_without_a_split_say_so(tmp_path: Path) -> None:
    """All of one release, or at 1%."""
    path = traffic(_QUERIES[:5], [SHALLOW], assign=lambda query: 0).write(tmp_path / "r")
    with pytest.raises(
        ConfigError, match="5 records are of the split's releases, and none of a moment when each had 5%"
    ):
        asked_report(path, DEEP, arms=(_as_recorded(SHALLOW), _as_recorded(DEEP)))


def test_what_is_left_out_depends_on_the_moment_alone() -> None:
    """The stable release's records of a 1% step go with the canary's."""
    arms = (_as_recorded(SHALLOW), _as_recorded(DEEP))
    assert shares_at(arms, 0, 0.99) == pytest.approx((0.99, 0.01))
    assert shares_at(arms, 1, 0.01) == pytest.approx((0.99, 0.01))
    assert [left_out(shares_at(arms, 0, share), 0.05) for share in (1.0, 0.99, 0.95, 0.5)] == [
        "unsplit",
        "thin",
        None,
        None,
    ]
