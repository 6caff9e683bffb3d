"""A large stage that orders lists: each is a call, and none of them is reckoned in pairs or tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.capacity.demand import Basis, Evidence
from cascade.capacity.distribution import Distribution
from cascade.capacity.headroom import Headroom
from cascade.capacity.plan import Plan, Pool
from cascade.capacity.planning import PlannedLevel, make_plan
from cascade.capacity.record_traffic import Digests, traffic_of_records
from cascade.capacity.told import told
from cascade.capacity.traffic import Traffic
from cascade.errors import ConfigError
from cascade.policy.levels import at_level, level_names
from cascade.types import StageName
from tests.capacity.made import CHAT, made_release, made_throughputs, made_traffic, record, records_head
from tests.replay.records import write_records
from tests.scenario import release_data

_SMALL = {"small": {"pairs_per_s": 1000.0}}
_LISTS = {**_SMALL, "large": {"lists_per_s": 5.0}}
_LEVELS = [{"name": "normal"}, {"name": "low", "escalation": "none"}]


def _plan(
    throughputs: dict[str, dict[str, Any]],
    traffic: Traffic | None = None,
    evidence: tuple[Evidence, ...] = (),
    **changes: Any,
) -> Plan:
    stages = {"small": release_data()["stages"]["small"], "large": CHAT}
    release = made_release(stages=stages, **changes)
    names = level_names(release)
    levels = [PlannedLevel(name, at_level(release, name), evidence if name == names[0] else ()) for name in names]
    return make_plan(levels, traffic or made_traffic(), made_throughputs(**throughputs), Headroom())


def _of_large(plan: Plan) -> tuple[float, Basis]:
    (found,) = [each for each in plan.levels[0].stages if each.stage is StageName.LARGE]
    return found.pairs, found.demand.basis


def test_a_query_is_one_list_however_many_passages_it_has() -> None:
    """At 10 queries a second and 5 lists a second of a replica, 2 are busy, as with 20 pairs of 100 a second."""
    plan = _plan(_LISTS)
    assert plan.levels[0].seconds == {Pool.SMALL: 0.05, Pool.LARGE: 0.2}
    assert plan.levels[0].replicas == {Pool.SMALL: 2, Pool.LARGE: 5}
    assert _of_large(plan) == (1.0, Basis.CONSTANT)
    assert "large orders lists: they are counted, each a call, and no pairs or tokens" in plan.notes


def test_one_text_is_no_list() -> None:
    """A quarter of the queries has one candidate, and its order is known."""
    traffic = made_traffic(candidates=Distribution.weighted({1: 1, 2: 1, 100: 2}.items()))
    assert _of_large(_plan(_LISTS, traffic)) == (0.75, Basis.CONSTANT)
    assert _of_large(_plan(_LISTS, escalation={"kind": "static", "top_m": 1})) == (0.0, Basis.CONSTANT)


def test_a_level_without_escalation_sends_no_list() -> None:
    """It needs no large replica."""
    levels = _plan(_LISTS, levels=_LEVELS).levels
    assert [dict(each.seconds) for each in levels] == [{Pool.SMALL: 0.05, Pool.LARGE: 0.2}, {Pool.SMALL: 0.05}]


def test_without_a_pace_the_lists_are_told_and_no_replicas() -> None:
    """What one replica orders cannot be told from pairs or tokens."""
    plan = _plan(_SMALL)
    assert plan.levels[0].replicas == {Pool.SMALL: 2}
    assert _of_large(plan) == (1.0, Basis.CONSTANT)
    assert any(note.endswith("no replicas of it are planned without lists_per_s") for note in plan.notes)


def test_a_list_is_told_as_what_it_is() -> None:
    """Neither pairs nor tokens stand in the plan of such a stage."""
    stages = told(_plan(_LISTS), {})["levels"][0]["stages"]
    assert {name: stage["unit"] for name, stage in stages.items()} == {"small": "pairs", "large": "lists"}
    assert stages["large"]["lists_per_query"] == 1.0
    assert stages["large"]["at"]["peak"] == {"qps": 10.0, "lists_per_s": 10.0}
    assert not [key for key in stages["large"] if "pair" in key and not key.startswith("pairs_")]
    assert stages["small"]["at"]["peak"]["pairs_per_s"] == 500.0


@pytest.mark.parametrize(
    ("throughputs", "message"),
    [
        ({**_SMALL, "large": {"pairs_per_s": 9.0}}, "throughput: large orders lists: give lists_per_s"),
        ({**_SMALL, "large": {"tokens_per_s": 9.0}}, "throughput: large orders lists: give lists_per_s"),
        (
            {"small": {"lists_per_s": 9.0}, "large": {"lists_per_s": 9.0}},
            "throughput: small scores pairs: give pairs_per_s or tokens_per_s",
        ),
    ],
)
def test_a_pace_in_another_unit_is_refused(throughputs: dict[str, dict[str, Any]], message: str) -> None:
    """It would plan for something else."""
    with pytest.raises(ConfigError, match=f"^{message}$"):
        _plan(throughputs)


def test_records_tell_how_many_queries_sent_a_list(tmp_path: Path) -> None:
    """Of three, one sent two passages; another a single one, which was no list; a skipped one none."""
    lines = [record(0), record(30, escalated=[1]), record(61, escalated=[])]
    write_records(tmp_path / "r", [records_head(), *lines])
    digests = Digests("sha256:p1", "sha256:o1", "normal")
    found = traffic_of_records([tmp_path / "r"], window_s=60.0, burst_factor=1.0, digests=digests)
    skip = {"kind": "skip", "default": 20}
    lists, basis = _of_large(_plan(_LISTS, evidence=(found.evidence["normal"],), depth=skip))
    assert lists == pytest.approx(1 / 3)
    assert basis is Basis.RECORDS
    assert _of_large(_plan(_LISTS, depth=skip)) == (1.0, Basis.WORST)


def test_passages_that_were_counted_elsewhere_are_no_lists() -> None:
    """A report, and metrics, count what a stage was asked for, and not in how many calls."""
    evidence = (Evidence(Basis.REPORT, "a report", 20.0, 0.5),)
    assert _of_large(_plan(_LISTS, evidence=evidence, depth={"kind": "skip", "default": 20})) == (1.0, Basis.WORST)
