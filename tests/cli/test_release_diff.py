"""``cascade release diff --table``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.policy.release import TeiStage
from cascade.replay.queries import query_digest
from cascade.replay.table import write_table
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from evals.first_stage import shared_data
from tests.cli.conftest import Command, Done
from tests.replay.made import made_table
from tests.replay.made_calibration import made_artefact
from tests.rollout.arrange import stage_data
from tests.scenario import release_data


def _fingerprint(model: str) -> dict[str, Any]:
    spec = TeiStage.model_validate(stage_data(model))
    return asdict(fingerprint_of(spec, serializer(spec.serializer)))


_SCORERS = {name: {"fingerprint": _fingerprint(name)} for name in ("small", "large")}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a table that tells what scored its columns."""
    path = tmp_path / "made.parquet"
    write_table(path, made_table(conditions={"scorers": _SCORERS}))
    return path


def _release(folder: Path, name: str, **changes: Any) -> str:
    path = folder / f"{name}.yaml"
    stages = {each: stage_data(each) for each in ("small", "large")}
    path.write_text(yaml.safe_dump(release_data(release=name, stages=stages, **changes)), encoding="utf-8")
    return str(path)


def _diff(command: Command, one: str, other: str, table: Path, *more: str) -> Done:
    columns = ("--first-stage", "bm25,dense", "--small", "small", "--large", "large", "--k", "5", "--resamples", "1000")
    return command("release", "diff", one, other, "--table", str(table), *columns, *more)


def test_both_releases_are_replayed(command: Command, tmp_path: Path, table: Path) -> None:
    """Beside what changes: quality with its interval, cost, and how much is decided and served otherwise."""
    one, other = _release(tmp_path, "one"), _release(tmp_path, "other", escalation={"kind": "static", "top_m": 5})
    done = _diff(command, one, other, table)
    lines = done.out.splitlines()
    assert (done.status, done.err) == (1, "")
    assert lines[2].startswith("escalation: ")
    at = lines.index("replayed on 40 queries of made.parquet")
    assert lines[at + 1].startswith("  nDCG@5: 0.")
    assert lines[at + 1].count("[") == 1
    assert lines[at + 2] == "  pairs at the large stage, a query: 20.00 -> 5.00 (-75.0%)"
    assert lines[at + 3] == "  pairs at the small stage, a query: 20.00 -> 20.00 (+0.0%)"
    assert lines[at + 6] == (
        "  decisions that differ: 100.0% of the queries (depth 0.0%, action 0.0%, candidates sent 100.0%)"
    )
    assert lines[at + 7].startswith("  orders that differ in the top 5: ")
    assert lines[at + 8 :] == []


def test_json_is_one_object(command: Command, tmp_path: Path, table: Path) -> None:
    """It has what the lines have, and without a table no replay."""
    one, other = _release(tmp_path, "one"), _release(tmp_path, "other", depth=10)
    done = _diff(command, one, other, table, "--json")
    told = json.loads(done.out)
    assert done.status == 1
    assert [told[side]["release"] for side in ("before", "after")] == ["one", "other"]
    assert told["replay"]["decisions"]["depth"]["value"] == 1.0
    assert told["replay"]["warnings"] == []
    bare = json.loads(command("release", "diff", one, other, "--json").out)
    assert bare == told | {"replay": None}


def test_releases_that_decide_alike_differ_in_nothing(command: Command, tmp_path: Path, table: Path) -> None:
    """Another name is exit 0, and the replay says so too."""
    done = _diff(command, _release(tmp_path, "one"), _release(tmp_path, "other"), table)
    assert done.status == 0
    assert "nothing changes for traffic" in done.out
    assert "difference +0.0000 [+0.0000, +0.0000]" in done.out


def test_a_release_for_other_stages_than_the_columns_is_a_warning(
    command: Command, tmp_path: Path, table: Path
) -> None:
    """Once for each release and stage; a table that does not tell is one too."""
    one = _release(tmp_path, "one")
    path = tmp_path / "other.yaml"
    stages = {"small": stage_data("small"), "large": stage_data("larger")}
    path.write_text(yaml.safe_dump(release_data(release="other", stages=stages)), encoding="utf-8")
    done = _diff(command, one, str(path), table)
    warnings = [line for line in done.out.splitlines() if line.startswith("warning")]
    assert warnings == [
        (
            "warning: table made.parquet: release other: its large stage is not what scored column large: "
            "model org/larger, the column's org/large"
        )
    ]
    write_table(table, made_table())
    done = _diff(command, one, one, table)
    assert [line for line in done.out.splitlines() if line.startswith("warning")] == [
        f"warning: table made.parquet: release one: the table does not tell what scored column {name}: "
        f"the {name} stage may be another"
        for name in ("small", "large")
    ]


def test_calibrations_are_found_with_their_release(command: Command, tmp_path: Path, table: Path) -> None:
    """Nobody names them; queries that one was fitted on are counted, and one that is missing is exit 2."""
    artefact = made_artefact(trained_on=[query_digest("q1-000"), query_digest("q1-039")])
    made = made_table()
    scores = {name: values.copy() for name, values in made.scores.items()}
    scores["dense"][:40] = np.nan
    write_table(table, replace(made, scores=scores))
    data = artefact_bytes(artefact)
    (tmp_path / "artifacts").mkdir()
    kept = tmp_path / "artifacts" / f"{artefact_digest(data).removeprefix('sha256:')}.json"
    kept.write_bytes(data)
    rule = {"kind": "calibrated", "calibration": artefact_digest(data), "price_per_pair": 0.001}
    one, other = _release(tmp_path, "one"), _release(tmp_path, "other", escalation=rule)
    done = _diff(command, one, other, table)
    assert done.status == 1
    notes = [line for line in done.out.splitlines() if line.startswith("note")]
    assert notes == [
        "note: SEEN IN FITTING: 2 of these queries trained the calibration of the release after",
        "note: the calibration of the release after does not hold for 2 queries: it does not decide there",
        "note: the release after decides for the top 10, and quality is at 5",
    ]
    kept.unlink()
    done = _diff(command, one, other, table)
    assert (done.status, done.out) == (2, "")
    assert "no file has this digest" in done.err


@pytest.mark.parametrize(
    ("changes", "more", "told"),
    [
        ({"mode": "observe"}, (), "in mode observe it serves always-large"),
        ({}, ("--small", "none"), "no column none"),
        ({}, ("--where", "source"), "--where: write COLUMN=VALUE"),
        ({}, ("--table", "none.parquet"), "there is no such file"),
    ],
)
def test_what_cannot_be_replayed_is_exit_2(
    command: Command, tmp_path: Path, table: Path, changes: dict[str, Any], more: tuple[str, ...], told: str
) -> None:
    """As cascade eval refuses it, in one line."""
    done = _diff(command, _release(tmp_path, "one"), _release(tmp_path, "other", **changes), table, *more)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert told in line


def test_a_table_needs_its_columns_named(command: Command, tmp_path: Path, table: Path) -> None:
    """And each table is named once."""
    one = _release(tmp_path, "one")
    done = command("release", "diff", one, one, "--table", str(table))
    assert (done.status, done.err) == (2, "cascade: --table: name its columns with --small and --large\n")
    done = _diff(command, one, one, table, "--table", str(table))
    assert (done.status, done.err) == (2, "cascade: --table: two tables have the same file name\n")


@pytest.mark.data
def test_two_releases_on_real_scores(command: Command, tmp_path: Path) -> None:
    """Top 10 in place of top 30 on Japanese questions: cheaper by two thirds, and what that loses is told."""
    path = shared_data() / "jqara.parquet"
    if not path.is_file():
        pytest.skip(f"no real collections at {path.parent}")
    rules = [{"kind": "static", "top_m": many} for many in (30, 10)]
    one, other = (_release(tmp_path, f"top-{rule['top_m']}", escalation=rule) for rule in rules)
    done = command(
        "release", "diff", one, other, "--table", str(path), "--small", "ce_ja_xsmall", "--large", "ce_ja_large",
        "--first-stage", "bm25,bge_m3_dense", "--where", "source=QA20QBIK", "--resamples", "1000", "--json",
    )  # fmt: skip
    assert (done.status, done.err) == (1, "")
    replay = json.loads(done.out)["replay"]
    assert replay["queries"] == 740
    assert replay["cost"]["large_pairs"]["difference"]["value"] == -20
    low, high = replay["quality"]["difference"]["interval"]
    assert low < high < 0
    assert replay["decisions"]["any"]["value"] == 1
