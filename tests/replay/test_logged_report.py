"""What records of a random split say of another release, where the truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from cascade.fit.reward import predicted_rewards
from cascade.replay.logged.outcomes import Outcomes
from tests.escalated import CALIBRATION, rule
from tests.replay.bandit import (
    BY_CLASS,
    DEEP,
    DEEP_ALONE,
    OBSERVING,
    QUERIES,
    SHALLOW,
    SPLIT,
    asked_report,
    outcomes_of,
    truth_of,
    written_split,
)
from tests.replay.served import Traffic, made_queries, serving_of, traffic


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcomes]:
    """Give the records and outcomes of 600 queries, served by either release at random."""
    return written_split(tmp_path_factory.mktemp("split"))


def test_a_target_that_neither_release_is_is_estimated_from_both(split: tuple[Path, Outcomes]) -> None:
    """Every estimate's interval holds the truth, which is above the mean that was logged; IPS is the least sure."""
    told = asked_report(split[0], BY_CLASS, SPLIT, split[1], model=predicted_rewards)
    reward, truth = told["reward"], truth_of(BY_CLASS)
    assert reward["refused"] == []
    for name in ("ips", "snips", "dr"):
        low, high = reward["intervals"][name]
        assert low < truth < high, name
        assert high - low < 0.2, name
    assert truth > reward["logged"] + 0.03
    assert reward["difference"] == pytest.approx(reward["dr"] - reward["logged"])
    assert reward["intervals"]["difference"][0] > 0.0
    width = {name: high - low for name, (low, high) in reward["intervals"].items()}
    assert max(width["dr"], width["snips"]) < width["ips"]
    assert reward["weights"]["least_propensity"] == 0.5
    assert reward["weights"]["clipped_mass"] == 0.0
    assert reward["weights"]["effective_sample_size"] == pytest.approx(300, abs=40)
    assert reward["range"] == [0.0, 1.0]


def test_coverage_is_told_by_class(split: tuple[Path, Outcomes]) -> None:
    """About half of each class was served as the target would have; by nobody else, of the rest."""
    told = asked_report(split[0], BY_CLASS, SPLIT)
    coverage = told["coverage"]
    assert told["reward"] is None
    assert coverage["records"] == coverage["queries"] == 600
    assert coverage["same_set"] == coverage["same_answer"] == pytest.approx(0.5, abs=0.05)
    assert {name: part["records"] for name, part in coverage["by_class"].items()} == {"identifier": 200, "other": 400}
    assert (coverage["supported"], coverage["unsupported"]) == (pytest.approx(0.5, abs=0.05), 0.0)
    # What the records of the shallow release do not tell is what the deep one and the target would have sent.
    assert coverage["undetermined"] == pytest.approx(1.0 - coverage["supported"])
    assert coverage["by_class"]["identifier"]["undetermined"] == pytest.approx(
        1.0 - coverage["by_class"]["identifier"]["supported"], abs=1e-9
    )


def test_two_rounds_are_estimated_though_the_other_release_does_not_tell_them(tmp_path: Path) -> None:
    """A target that is one of the split is covered by its own records; how many pairs it sends is then estimated."""
    rounds = serving_of("rounds", 0.5, CALIBRATION, depth=12, escalation=rule(chunk=2, price_per_pair=0.02))
    served = traffic(QUERIES[:450], (rounds, DEEP))
    records, outcomes = served.write(tmp_path / "records"), outcomes_of(served)
    told = asked_report(records, rounds, (rounds, DEEP), outcomes, model=predicted_rewards)
    assert told["reward"]["refused"] == []
    pairs = told["large_pairs"]
    assert pairs["known"] < 1.0
    truth = traffic(QUERIES[:450], [rounds], assign=lambda query: 0)
    sent = np.mean([len(orjson.loads(line)["escalated"]) for line in truth.lines])
    low, high = pairs["intervals"]["dr"]
    assert low < sent < high
    assert high - low < 1.0


def test_pairs_are_counted_where_every_record_tells_them(split: tuple[Path, Outcomes]) -> None:
    """No weights are needed, and nothing is refused, though the value would be."""
    told = asked_report(split[0], serving_of("seven", depth=4, escalation={"kind": "static", "top_m": 2}), SPLIT)
    assert told["large_pairs"]["refused"] == []
    assert (told["large_pairs"]["known"], told["large_pairs"]["target"]) == (1.0, 2.0)
    assert told["large_pairs"]["logged"] == 4.0


def test_without_a_split_only_coverage_is_told(split: tuple[Path, Outcomes]) -> None:
    """Propensities are not known then."""
    told = asked_report(split[0], SHALLOW, (), split[1])
    assert told["coverage"]["same_set"] == pytest.approx(0.5, abs=0.05)
    assert "same_answer" not in told["coverage"]
    assert told["reward"]["refused"] == [
        "split: no release of it is named; wanted: --arm RELEASE=SHARE for each that made records"
    ]
    assert told["large_pairs"]["target"] == 4.0
    two_rounds = serving_of("rounds", 1.0, CALIBRATION, depth=4, escalation=rule(chunk=2, price_per_pair=0.02))
    unknown = asked_report(split[0], two_rounds)["large_pairs"]
    assert unknown["refused"][0].startswith("split")
    assert "target" not in unknown


def _of_query(served: Traffic) -> Outcomes:
    return Outcomes({name: float(query.number % 2) for name, (query, _, _) in served.served.items()})


def test_records_of_one_query_are_one_draw(tmp_path: Path) -> None:
    """Three records of each query are no more evidence than one: intervals are over queries."""
    once, thrice = (traffic(made_queries(210, times=times), [DEEP_ALONE]) for times in (1, 3))
    told = [
        asked_report(each.write(tmp_path / str(at)), DEEP_ALONE, (DEEP_ALONE,), _of_query(each))["reward"]
        for at, each in enumerate((once, thrice))
    ]
    assert [(each["records"], each["queries"]) for each in told] == [(210, 210), (630, 210)]
    assert told[0]["intervals"]["ips"] == told[1]["intervals"]["ips"]
    assert [each["weights"]["effective_sample_size"] for each in told] == [210.0, 210.0]


def test_queries_that_not_all_releases_record_are_left_out(tmp_path: Path) -> None:
    """With samples of 0.5 and all, a query outside the smaller one was recorded under one release only."""
    arms = (replace(SHALLOW, sample=0.5), DEEP)
    served = traffic(QUERIES, arms)
    told = asked_report(served.write(tmp_path / "records"), BY_CLASS, arms, outcomes_of(served))
    assert told["conditions"]["sample"] == 0.5
    common = [query.hash for query in QUERIES if int(query.hash, 16) < 2**63]
    assert told["counts"]["used"] == len(common)
    assert told["counts"]["outside_common_sample"] == len(served.lines) - len(common)
    assert told["reward"]["weights"]["mean"] == pytest.approx(1.0, abs=0.15)


def test_always_large_may_be_a_release_of_the_split(tmp_path: Path) -> None:
    """Records of mode observe are logs of always-large too: half of the traffic to each estimates both."""
    arms = (replace(OBSERVING, share=0.5), DEEP)
    served = traffic(QUERIES, arms)
    records, outcomes = served.write(tmp_path / "records"), outcomes_of(served)
    told = asked_report(records, OBSERVING, arms, outcomes)
    assert told["reward"]["refused"] == []
    low, high = told["reward"]["intervals"]["snips"]
    assert low < 0.9 < high
    assert told["shadow"]["records"] == sum(arm == 0 for _, arm, _ in served.served.values())
    assert told["coverage"]["same_answer"] == pytest.approx(0.5, abs=0.06)


def test_no_text_is_in_the_report(split: tuple[Path, Outcomes]) -> None:
    """Nor a hash of a query or a document."""
    written = orjson.dumps(asked_report(split[0], BY_CLASS, SPLIT, split[1]))
    assert b"lamp" not in written
    assert not any(query.hash.encode() in written for query in QUERIES)
