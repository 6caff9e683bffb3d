"""What records of a split do not support, and what is wrong with some: refused, by name and number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.replay.logged.outcomes import Outcomes
from cascade.replay.logged.report import Asked, off_policy_report
from cascade.types import StageName
from tests.escalated import CALIBRATION, rule
from tests.replay.bandit import (
    BY_CLASS,
    DEEP,
    DEEP_ALONE,
    FOUR,
    OTHER,
    QUERIES,
    SHALLOW,
    SPLIT,
    asked_report,
    outcomes_of,
    written_split,
)
from tests.replay.served import serving_of, traffic


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcomes]:
    """Give the records and outcomes of 600 queries, served by either release at random."""
    return written_split(tmp_path_factory.mktemp("split"))


def _refusals(told: Mapping[str, Any]) -> list[str]:
    return [refusal.partition(":")[0] for refusal in told["reward"]["refused"]]


def test_a_target_that_no_release_does_is_refused(split: tuple[Path, Outcomes]) -> None:
    """The value is not told, and the guards that refuse it are; what was logged and what is covered still is."""
    told = asked_report(split[0], OTHER, SPLIT, split[1])
    reward = told["reward"]
    assert [refusal.partition(":")[0] for refusal in reward["refused"]] == [
        "support", "propensity", "mean weight", "effective sample size",
    ]  # fmt: skip
    assert reward["refused"][0].startswith("support: on ")
    assert (reward["ips"], reward["snips"], reward["difference"]) == (None, None, None)
    assert reward["reasons"]["ips"] == "refused by a guard"
    assert reward["logged"] == pytest.approx(0.6, abs=0.1)
    assert told["coverage"]["same_set"] == 0.0


def test_one_release_alone_answers_only_for_itself(tmp_path: Path) -> None:
    """Without exploration another target is refused; the same policy under another name has the logged value."""
    alone = replace(DEEP, share=1.0)
    served = traffic(QUERIES[:250], [alone])
    records, outcomes = served.write(tmp_path / "records"), outcomes_of(served)
    refused = asked_report(records, BY_CLASS, (alone,), outcomes)["reward"]["refused"]
    assert any("a single release explores nothing" in refusal for refusal in refused)
    same = asked_report(records, serving_of("renamed", depth=12, escalation=FOUR), (alone,), outcomes)
    assert same["coverage"]["same_answer"] == 1.0
    assert same["reward"]["refused"] == []
    assert same["reward"]["ips"] == same["reward"]["snips"] == same["reward"]["logged"]
    assert same["reward"]["difference"] == 0.0


def test_shares_that_were_not_those_of_the_traffic_are_refused(split: tuple[Path, Outcomes]) -> None:
    """A split of 0.8 to 0.2 did not make these records."""
    arms = (replace(SHALLOW, share=0.8), replace(DEEP, share=0.2))
    told = asked_report(split[0], BY_CLASS, arms, split[1])
    assert "shares" in _refusals(told)
    assert "standard errors away" in told["reward"]["refused"][0]


def test_a_release_that_does_not_decide_as_it_did_is_refused(split: tuple[Path, Outcomes]) -> None:
    """Records of a release that served something else than its file says estimate nothing."""
    changed = replace(DEEP.arm, decider=OTHER.decider)
    asked = Asked([split[0]], BY_CLASS.decider, {}, (SHALLOW.arm, changed), split[1], resamples=400)
    told = off_policy_report(asked)
    assert _refusals(told)[0] == "fidelity of deep"
    arm = told["arms"][1]
    assert (arm["fidelity"], arm["unfaithful"]) == (0.0, arm["records"])
    assert told["notes"] == [f"{arm['records']} records are not what their release decides by them, and are left out"]


def test_a_calibration_that_did_not_hold_is_told_as_the_cause(tmp_path: Path) -> None:
    """A server that was not the one fitted for runs the safe mode, which the release by itself would not."""
    rounds = serving_of("rounds", 1.0, CALIBRATION, depth=12, escalation=rule(chunk=2, safe_top_m=2))
    served = traffic(QUERIES[:30], [replace(rounds, calibration=None)])
    told = asked_report(served.write(tmp_path / "records"), rounds, (rounds,))
    assert told["arms"][0]["without_calibration"] == 30
    assert any("30 of them where no calibration held" in guard["seen"] for guard in told["guards"])


def test_answers_that_trouble_decided_are_left_out_counted_and_refused_where_many(tmp_path: Path) -> None:
    """A large stage that fails for a tenth of the queries makes what is left another traffic."""
    served = traffic(
        QUERIES[:300],
        [DEEP_ALONE],
        behaves=lambda query, stage: {"delay_ms": 500.0} if stage is StageName.LARGE and query.number % 10 == 0 else {},
    )
    told = asked_report(served.write(tmp_path / "records"), DEEP_ALONE, (DEEP_ALONE,), outcomes_of(served))
    assert _refusals(told) == ["degraded answers of deep"]
    assert told["reward"]["refused"][0].startswith(
        "degraded answers of deep: 30 of 300 records (stage_timeout 30); wanted: at most 5%"
    )
    assert (told["arms"][0]["degraded"], told["arms"][0]["degraded_by"]) == (30, {"stage_timeout": 30})
    assert told["counts"]["used"] == 270
    assert asked_report(tmp_path / "records", DEEP_ALONE)["counts"]["degraded"] == 30


def _arms() -> tuple[Any, ...]:
    return (SHALLOW.arm, DEEP.arm)


def test_a_rule_of_the_split_that_reads_a_text_is_refused(split: tuple[Path, Outcomes]) -> None:
    """What it would have done for the other release's queries is not in the records."""
    reading = serving_of("reading", 0.5, depth={"kind": "skip"})
    asked = Asked([split[0]], BY_CLASS.decider, {}, (SHALLOW.arm, reading.arm), split[1], resamples=400)
    found = replace(asked, arms=(replace(SHALLOW.arm, share=0.5), replace(reading.arm, share=0.5)))
    with pytest.raises(ConfigError, match="none is of a record that the target could be estimated from"):
        off_policy_report(found)
    told = off_policy_report(replace(found, outcomes=None))
    assert told["arms"][0]["untold"] == told["arms"][0]["records"]
    assert told["coverage"] is None
    assert told["large_pairs"] is None
    untold = off_policy_report(replace(found, outcomes=None, arms=_arms(), target=reading.decider))
    assert untold["coverage"]["undetermined"] == 1.0


def test_too_few_records_are_refused(tmp_path: Path) -> None:
    """Below 200 effective queries no estimate is told."""
    served = traffic(QUERIES[:250], SPLIT)
    told = asked_report(served.write(tmp_path / "records"), BY_CLASS, SPLIT, outcomes_of(served))
    assert _refusals(told) == ["effective sample size"]


def test_records_without_an_outcome_are_left_out_or_have_the_reward_that_is_said(split: tuple[Path, Outcomes]) -> None:
    """A tenth without one is refused; said to be worth nought, it is the estimate of that."""
    kept = Outcomes({name: reward for name, reward in split[1].rewards.items() if int(name[3:]) % 10})
    told = asked_report(split[0], BY_CLASS, SPLIT, kept)
    assert _refusals(told) == ["outcomes"]
    assert "60 of 600 records have none" in told["reward"]["refused"][0]
    said = asked_report(split[0], BY_CLASS, SPLIT, kept, without_outcome=0.0)["reward"]
    assert (said["refused"], said["without_outcome"], said["records"]) == ([], 60, 600)
    zeroed = Outcomes({name: reward * (name in kept.rewards) for name, reward in split[1].rewards.items()})
    assert said["snips"] == asked_report(split[0], BY_CLASS, SPLIT, zeroed)["reward"]["snips"]


def test_outcomes_that_match_nothing_are_counted_and_refused_where_all_do(split: tuple[Path, Outcomes]) -> None:
    """An outcome of a decision that was not recorded says nothing."""
    more = Outcomes({**split[1].rewards, "id-x": 1.0, "id-y": 0.0}, repeated=3)
    counts = asked_report(split[0], BY_CLASS, SPLIT, more)["counts"]
    assert (counts["outcomes"], counts["outcomes_of_no_record"], counts["outcomes_repeated"]) == (602, 2, 3)
    with pytest.raises(ConfigError, match="outcomes: none is of a record"):
        asked_report(split[0], BY_CLASS, SPLIT, Outcomes({"id-x": 1.0}))


def test_records_of_other_models_are_refused(split: tuple[Path, Outcomes]) -> None:
    """Neither the target nor a release of the split may have another model than scored the records."""
    stages = {name: dict(spec) for name, spec in DEEP.data["stages"].items()}
    stages["large"]["model"] = "other"
    other = serving_of("other", 0.5, depth=12, escalation=FOUR, stages=stages)
    told = "another large stage than release other has: its model is m, the release declares other"
    with pytest.raises(ConfigError, match=told):
        asked_report(split[0], other)
    with pytest.raises(ConfigError, match=told):
        asked_report(split[0], BY_CLASS, (SHALLOW, other))


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.5, 0.6), "the shares add up to 1.1, not to 1"),
        ((1.0, 0.0), "a share is above 0 and at most 1"),
    ],
)
def test_shares_that_are_none_are_refused(split: tuple[Path, Outcomes], shares: tuple[float, float], told: str) -> None:
    """A split is shares above nought that add up to one, of releases that are not the same."""
    arms = tuple(replace(each, share=share) for each, share in zip(SPLIT, shares, strict=True))
    with pytest.raises(ConfigError, match=told):
        asked_report(split[0], BY_CLASS, arms)
    with pytest.raises(ConfigError, match="one release is named twice"):
        asked_report(split[0], BY_CLASS, (DEEP, DEEP))


def test_records_of_nothing_that_was_asked_for_are_refused(split: tuple[Path, Outcomes], tmp_path: Path) -> None:
    """An empty file and one of other releases both are no evaluation."""
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    with pytest.raises(ConfigError, match="no record was found"):
        asked_report(empty, BY_CLASS)
    with pytest.raises(ConfigError, match="no record is of a release of the split, or of mode observe"):
        asked_report(split[0], BY_CLASS, (replace(OTHER, share=1.0),))
