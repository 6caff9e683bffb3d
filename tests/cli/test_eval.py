"""``cascade eval``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.calibration.artefact import PricePoint, artefact_bytes, artefact_digest
from cascade.replay.table import write_table
from tests.cli.conftest import Command, Done
from tests.replay.made import made_table
from tests.replay.made_calibration import made_artefact
from tests.scenario import release_data


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a made table."""
    path = tmp_path / "made.parquet"
    write_table(path, made_table())
    return path


def _eval(command: Command, table: Path, *more: str, small: str = "small") -> Done:
    """Run the command on a table with the options that every test here has."""
    out = table.with_name("report.json")
    options = ("--first-stage", "bm25, dense", "--small", small, "--large", "large", "--k", "5", "--resamples", "1000")
    return command("eval", "--table", str(table), *options, "--out", str(out), *more)


def _written(table: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(table.with_name("report.json").read_text(encoding="utf-8"))
    return told


def test_a_report_is_written_and_summed_up(command: Command, table: Path) -> None:
    """The file holds the figures, the terminal the short form, and the status is 0."""
    done = _eval(command, table)
    assert (done.status, done.err) == (0, "")
    told = _written(table)
    assert (told["queries"], told["conditions"]["first_stage"]) == (40, ["bm25", "dense"])
    assert "40 queries, small -> large, ndcg, k = 5" in done.out
    assert "engaged 1.000: every query was reranked" in done.out
    assert "the large stage is better than the small one" in done.out
    assert f"{told['area_10_50']['static']:.3f}".removeprefix("0") in done.out
    assert "nothing but baselines was replayed" in done.out


def test_options_reach_the_evaluation(command: Command, table: Path) -> None:
    """Each option is in the conditions of the report."""
    done = _eval(command, table, "--gain", "exponential", "--metric", "mrr", "--where", "source=a", "--depth", "10",
                 "--price", "0.01", "--seed", "7")  # fmt: skip
    assert done.status == 0
    conditions = _written(table)["conditions"]
    wanted = {
        "gain": "exponential",
        "metric": "mrr",
        "where": ["source=a"],
        "depth": 10,
        "price_per_pair": 0.01,
        "seed": 7,
    }
    assert wanted.items() <= conditions.items()


def test_several_tables_are_one_evaluation(command: Command, table: Path) -> None:
    """Their queries are pooled."""
    other = table.with_name("other.parquet")
    write_table(other, made_table(30, seed=2))
    assert _eval(command, table, "--table", str(other)).status == 0
    assert _written(table)["queries"] == 70


def test_silver_quality_is_announced(command: Command, table: Path) -> None:
    """Without judgements nobody can take the figures for relevance."""
    write_table(table, made_table(rel=None))
    done = _eval(command, table)
    assert "SILVER ndcg, no judgements" in done.out
    assert "NO JUDGEMENTS" in done.out
    assert "it is NOT SHOWN that the large stage is better" in done.out


def test_a_harmful_large_stage_is_announced(command: Command, table: Path) -> None:
    """Undefined shares are dashes, and the reason stands above them."""
    write_table(table, made_table(noise=4.0))
    done = _eval(command, table)
    assert done.status == 0
    assert "the large stage is WORSE than the small one" in done.out
    assert (_written(table)["large_helps"], _written(table)["curves"]["static"]) == ("harms", None)
    assert any(line.split() == ["static", *"-----"] for line in done.out.splitlines())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--where", "source"), "--where: write COLUMN=VALUE"),
        (("--where", "source=z"), "table made.parquet: column source: no query has the value asked for"),
        (("--first-stage", "bm25,bm25"), "--first-stage: a channel is named twice"),
        (("--large", "huge"), "no column huge; scorers of this table are bm25, dense, large, small"),
        (("--table", "absent.parquet"), "table absent.parquet: there is no such file"),
        (("--table", "elsewhere/made.parquet"), "--table: two tables have the same file name"),
        (("--out", "/"), "--out /: is a folder; name a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(command: Command, table: Path, more: tuple[str, ...], message: str) -> None:
    """No traceback, and what to change."""
    done = _eval(command, table, *more)
    assert done.status == 2
    assert done.err.startswith("cascade: ")
    assert message in done.err
    assert "Traceback" not in done.err


def test_too_few_resamples_are_refused(command: Command, table: Path) -> None:
    """Intervals need a thousand at least."""
    assert _eval(command, table, "--resamples", "999").status == 2


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    """Write a made calibration."""
    path = tmp_path / "calibration.json"
    path.write_bytes(artefact_bytes(made_artefact(second=True)))
    return path


def test_a_calibration_is_replayed_with_the_default_rule(command: Command, table: Path, calibration: Path) -> None:
    """Both the fused baseline and the policy are compared with static."""
    done = _eval(command, table, "--calibration", str(calibration))
    assert (done.status, done.err) == (0, "")
    assert "static-fused minus static: area +" in done.out
    assert "policy minus static-fused: area " in done.out
    told = _written(table)
    described = told["conditions"]["policy"]
    assert (described["price"], described["rule"]["k"], described["rule"]["rounds"]) == ("default", 5, 2)
    assert described["rule"]["calibration"] == told["conditions"]["calibration"]["sha256"]


def test_a_calibration_knows_its_price(command: Command, table: Path, calibration: Path) -> None:
    """The price fitted nearest to 95% is the policy's own; a k that is not estimated is read at the calibration's."""
    points = [PricePoint(target=target, price=target / 50, recovered=target, large_share=0.3, judged_by="judgements")
              for target in (0.9, 0.95)]  # fmt: skip
    artefact = made_artefact().model_copy(update={"prices": tuple(points)})
    calibration.write_bytes(artefact_bytes(artefact))
    assert _eval(command, table, "--calibration", str(calibration), "--k", "7").status == 0
    described = _written(table)["conditions"]["policy"]
    assert (described["price"], described["rule"]["price_per_pair"]) == ("fitted for 0.95", 0.019)
    assert described["rule"]["k"] == 5


def _release(folder: Path, **changes: Any) -> str:
    data = release_data(**changes)
    if "large" in data["stages"]:
        data["stages"]["large"]["url"] = "${NOT_SET_ANYWHERE}"
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return str(path)


def test_a_release_is_replayed_as_it_is_written(command: Command, table: Path, calibration: Path) -> None:
    """Its depth and escalation decide; a variable for an address need not be set."""
    digest = artefact_digest(calibration.read_bytes())
    rule = {"kind": "calibrated", "calibration": digest, "k": 5, "price_per_pair": 0.03}
    release = _release(table.parent, escalation=rule, depth=12, history={"classes": {"other": 0.5}})
    done = _eval(command, table, "--calibration", str(calibration), "--release", release)
    assert (done.status, done.err) == (0, "")
    told = _written(table)
    assert told["conditions"]["policy"]["release"] == "r1"
    assert told["decided"]["depth"] == 12.0
    assert [each["settings"] for each in told["policies"] if each["name"] == "policy"] == [[[0.03, 1.0]]]


def test_a_release_that_skips_every_query_is_not_called_reranked(command: Command, table: Path) -> None:
    """The terminal says what share of the queries a reranker saw."""
    done = _eval(command, table, "--release", _release(table.parent, depth=0))
    assert "a reranker saw only this share of the queries; do not call the result reranked" in done.out
    assert "policy minus static: area -, cost at 0.95 -, quality at equal cost" in done.out


@pytest.mark.parametrize("other", [True, False])
def test_a_release_needs_the_calibration_that_it_names(
    command: Command, table: Path, calibration: Path, other: bool
) -> None:
    """Another calibration, or none, would replay something else."""
    rule = {"kind": "calibrated", "calibration": "sha256:" + "0" * 64, "k": 5, "price_per_pair": 0.03}
    more = ("--calibration", str(calibration)) if other else ()
    done = _eval(command, table, "--release", _release(table.parent, escalation=rule), *more)
    assert done.status == 2
    assert "its escalation reads sha256:000" in done.err


def test_a_calibration_that_is_not_there_is_told(command: Command, table: Path) -> None:
    """One line, with the path that was given."""
    done = _eval(command, table, "--calibration", "absent.json")
    assert (done.status, done.err) == (2, "cascade: calibration absent.json: cannot be read: FileNotFoundError\n")


def test_load_levels_time_and_money_are_told(command: Command, table: Path) -> None:
    """Each level of the release is replayed, its time by the milliseconds given, and what it costs on each device."""
    levels = [{"name": "normal"}, {"name": "less", "escalation": "none"}, {"name": "least", "stages": "none"}]
    release = _release(table.parent, levels=levels, escalation={"kind": "static", "top_m": 10}, depth=20)
    done = _eval(command, table, "--release", release, "--ms-per-pair", "small=1,large=10", "--ms-per-call", "5",
                 "--price-per-hour", "small=0.1,large=1", "--device", "gpu:ms=1,price=2")  # fmt: skip
    assert (done.status, done.err) == (0, "")
    told = _written(table)
    assert [(each["name"], each["large_pairs"]) for each in told["levels"]] == [
        ("normal", 10.0),
        ("less", 0.0),
        ("least", 0.0),
    ]
    assert [each["p95"] for each in told["latency"]["levels"]] == [130.0, 25.0, 0.0]
    assert (told["latency"]["always_large"]["p95"], told["latency"]["deadline_ms"]) == (205.0, 100.0)
    assert {(row["name"], row["device"]) for row in told["cost"]["rows"]} >= {("normal", None), ("least", "gpu")}
    for said in ("Load levels", "  normal: ndcg ", "p95 130 ms", "40 queries cannot certify 1%", "Regret of policy"):
        assert said in done.out


def test_a_release_that_asks_no_stage_is_refused(command: Command, table: Path) -> None:
    """There is nothing to replay."""
    done = _eval(command, table, "--release", _release(table.parent, stages={}, escalation="none"))
    assert (done.status, done.out) == (2, "")
    assert "it asks no stage, so there is nothing to replay" in done.err
