"""``cascade calibrate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.calibration.artefact import artefact_digest, parse_artefact
from cascade.policy.depth_rules import FixedDepth, GreedyDepth
from cascade.replay.table import ScoreTable, write_table
from cascade.rollout.load import load_release
from cascade.types import QueryClass
from tests.cli.conftest import Command, Done
from tests.fit.planted import ERRORS, misled_by_class, planted_table
from tests.replay.records import decision_line, head_line, write_records
from tests.scenario import release_data

_ROLES = ("--first-stage", "bm25,dense", "--small", "small", "--large", "large")
_HARMFUL = {**ERRORS, "small": 0.3, "large": 3.0}


def _written(folder: Path, table: ScoreTable, name: str = "t.parquet") -> str:
    write_table(folder / name, table)
    return str(folder / name)


def _release(folder: Path) -> str:
    path = folder / "base.yaml"
    path.write_text(yaml.safe_dump(release_data()), encoding="utf-8")
    return str(path)


def _calibrate(command: Command, folder: Path, *more: str) -> Done:
    return command("calibrate", *_ROLES, "--k", "5", "--out", str(folder / "c.json"), *more)


def test_a_table_becomes_a_calibration_a_plot_and_a_release(command: Command, tmp_path: Path) -> None:
    """All of them are written, the terminal has the short form, and the release names the calibration's digest."""
    table = _written(tmp_path, planted_table(102, 14))
    plot, mine = tmp_path / "c.png", tmp_path / "mine.yaml"
    done = _calibrate(
        command, tmp_path, "--table", table, "--where", "q_class=identifier", "--allow-few", "--plot", str(plot),
        "--release", _release(tmp_path), "--release-out", str(mine), "--target", "0.9", "--seed", "3",
    )  # fmt: skip
    assert done.status == 0, done.err
    data = (tmp_path / "c.json").read_bytes()
    artefact = parse_artefact(data, "c.json")
    assert (artefact.trained_on.queries, artefact.k, artefact.trained_on.seed) == (51, 5, 3)
    assert artefact.trained_on.where == {"q_class": "identifier"}
    assert "51 queries, small -> large, k = 5" in done.out
    assert "does the large stage help: shown, ndcg@5 +0." in done.out
    assert "Reliability, cross-fitted" in done.out
    assert "Prices, cross-fitted" in done.out
    assert "ONLY 51 QUERIES" in done.out
    assert f"calibration: {tmp_path / 'c.json'}\n{artefact_digest(data)}\n" in done.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    release = load_release(mine, {}).release
    assert release.calibration == artefact_digest(data)
    price = next(point.price for point in artefact.prices if point.target == 0.9)
    assert release.escalation.price_per_pair == pytest.approx(price, rel=0.01)  # type: ignore[union-attr]
    assert f"release: {mine}\nescalation calibrated, price " in done.out


def test_a_depth_is_fitted_into_the_release(command: Command, tmp_path: Path) -> None:
    """Where the class tells it: greedy. What was compared is told, and noted in the calibration; eval replays it."""
    table, mine = _written(tmp_path, misled_by_class(102, 40)), tmp_path / "mine.yaml"
    done = _calibrate(
        command, tmp_path, "--table", table, "--fit-depth", "--depth-price", "0.0002",
        "--release", _release(tmp_path), "--release-out", str(mine), "--target", "0.8",
    )  # fmt: skip
    assert done.status == 0, done.err
    release = load_release(mine, {}).release
    assert isinstance(release.depth, GreedyDepth)
    assert release.depth.classes[QueryClass.IDENTIFIER] == 20
    assert release.history is None
    notes = parse_artefact((tmp_path / "c.json").read_bytes(), "c.json").notes
    assert any(note.startswith("depth: greedy is kept at 0.0002 a candidate, by ndcg@5") for note in notes)
    told = " ".join(done.out.split())
    assert "depth: greedy against fixed at a mean depth of" in told
    assert "what the large stage would find further down the small order does not count in it" in told
    assert "\ndepth by query class: identifier 20, other " in done.out
    report = tmp_path / "report.json"
    replayed = command(
        "eval", *_ROLES, "--k", "5", "--table", table, "--out", str(report), "--release", str(mine),
        "--calibration", str(tmp_path / "c.json"), "--resamples", "1000",
    )  # fmt: skip
    assert (replayed.status, replayed.err) == (0, "")


def test_a_depth_without_judgements_is_judged_by_the_large_order_and_says_so(command: Command, tmp_path: Path) -> None:
    """On the terminal, in capitals."""
    table, mine = _written(tmp_path, planted_table(100, 12, rel=None)), tmp_path / "mine.yaml"
    release = ("--release", _release(tmp_path), "--release-out", str(mine), "--target", "0.8")
    done = _calibrate(command, tmp_path, "--table", table, "--fit-depth", *release)
    assert done.status == 0, done.err
    assert "DEPTH IS JUDGED BY THE LARGE ORDER, NOT BY JUDGEMENTS" in done.out
    assert isinstance(load_release(mine, {}).release.depth, FixedDepth)


def test_lists_too_short_for_a_choice_of_depth_are_told_before_anything_is_fitted(
    command: Command, tmp_path: Path
) -> None:
    """Nothing is written."""
    table, mine = _written(tmp_path, planted_table(100, 8)), tmp_path / "mine.yaml"
    release = ("--release", _release(tmp_path), "--release-out", str(mine))
    done = _calibrate(command, tmp_path, "--table", table, "--fit-depth", *release)
    assert done.status == 2
    assert done.err.startswith("cascade: --fit-depth: depths from 10 on are compared")
    assert not (tmp_path / "c.json").exists()


def test_several_tables_are_fitted_as_one(command: Command, tmp_path: Path) -> None:
    """Their queries are pooled."""
    one, other = planted_table(25, 12, seed=1), planted_table(20, 12, seed=2)
    tables = ("--table", _written(tmp_path, one), "--table", _written(tmp_path, other, "u.parquet"))
    done = _calibrate(command, tmp_path, *tables, "--allow-few")
    assert (done.status, done.err) == (0, "")
    assert "45 queries, small -> large" in done.out


def test_a_harmful_large_stage_makes_a_release_that_escalates_nothing(command: Command, tmp_path: Path) -> None:
    """Few judged queries are enough for that; it says why, in the file and on the terminal."""
    mine = tmp_path / "mine.yaml"
    table = _written(tmp_path, planted_table(60, 12, errors=_HARMFUL))
    release = ("--release", _release(tmp_path), "--release-out", str(mine), "--fit-depth")
    done = _calibrate(command, tmp_path, "--table", table, *release)
    assert (done.status, done.err) == (0, "")
    assert "depth: fixed " in done.out
    assert "WHAT THE LARGE STAGE" not in done.out
    assert "does the large stage help: none-found, ndcg@5 -0." in done.out
    assert "escalation none: the large stage is not shown to help: ndcg@5 -0." in done.out
    loaded = load_release(mine, {}).release
    assert loaded.calibration is None
    assert loaded.stages.large is None
    assert "not shown to help" in mine.read_text(encoding="utf-8")


def test_without_judgements_that_is_said(command: Command, tmp_path: Path) -> None:
    """The policy imitates the large stage then, for better or worse."""
    table = _written(tmp_path, planted_table(30, 12, rel=None))
    done = _calibrate(command, tmp_path, "--table", table, "--allow-few")
    assert (done.status, done.err) == (0, "")
    assert "does the large stage help: not shown, there are no judgements" in done.out


def test_e8_fewer_than_twenty_queries_are_never_fitted(command: Command, tmp_path: Path) -> None:
    """Whoever insists."""
    done = _calibrate(command, tmp_path, "--table", _written(tmp_path, planted_table(19, 12)), "--allow-few")
    assert done.status == 2
    assert "calibrating needs 100, and 20 in any case" in done.err


def test_e8_records_are_fitted_as_a_table_of_them_is(command: Command, tmp_path: Path) -> None:
    """What a sidecar recorded in mode observe, without a table in between; columns are small and large."""
    table = planted_table(100, 12)
    lines: list[dict[str, Any]] = [head_line()]
    for query in range(100):
        rows = table.rows(query)
        scores = {name: table.scores[name][rows].tolist() for name in ERRORS}
        lines.append(
            decision_line(
                query_hash=f"{query:016x}",
                depth=12,
                ids=[f"{place:016x}" for place in range(12)],
                tokens=[10] * 12,
                small=scores["small"],
                large=scores["large"],
                channels={name: scores[name] for name in ("bm25", "dense")},
            )
        )
    records = write_records(tmp_path / "records.jsonl", lines)
    done = _calibrate(command, tmp_path, "--from-records", str(records))
    assert (done.status, done.err) == (0, "")
    artefact = parse_artefact((tmp_path / "c.json").read_bytes(), "c.json")
    assert artefact.benefit.status == "not-shown"
    assert artefact.large.fingerprint is not None
    assert artefact.large.fingerprint["model"] == "big"
    assert artefact.trained_on.first_stage == "rank_first"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "99 queries have scores of both stages; calibrating needs 100; --allow-few goes on with fewer"),
        (("--k", "4"), "--k: 4 is none of 1, 3, 5, 10"),
        (("--large", "huge"), "no column huge; scorers of this table are bm25, dense, large, small"),
        (("--first-stage", "bm25,bm25"), "--first-stage: a channel is named twice"),
        (("--first-stage", "small"), "--first-stage: a channel cannot be called small"),
        (("--where", "q_class"), "--where: write COLUMN=VALUE"),
        (("--where", "q_class=none"), "column q_class: no query has the value asked for"),
        (("--release", "r.yaml"), "--release and --release-out go together"),
        (("--release-out", "r.yaml"), "--release and --release-out go together"),
        (("--fit-depth",), "--fit-depth: the depth goes into a release; name --release and --release-out"),
        (("--depth-price", "0.001"), "--depth-price goes with --fit-depth"),
        (
            ("--fit-depth", "--depth-price", "nan", "--release", "absent.yaml", "--release-out", "r.yaml"),
            "--depth-price: a number of at least 0 is wanted",
        ),
        (("--fit-depth", "--release", "absent.yaml", "--release-out", "r.yaml"), "release absent.yaml: "),
        (("--from-records", "r.jsonl"), "name either --table or --from-records"),
        (("--table", "absent.parquet"), "table absent.parquet: there is no such file"),
        (("--allow-few", "--out", "/"), "--out /: is there already"),
        (("--allow-few", "--plot", "/absent/p.png"), "--plot /absent/p.png: its folder is not there"),
        (
            ("--allow-few", "--release", "absent.yaml", "--release-out", "r.yaml"),
            "release absent.yaml: ",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    command: Command, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    """No traceback, and what to change."""
    table = _written(tmp_path, planted_table(99, 3, rel=None))
    done = _calibrate(command, tmp_path, "--table", table, *more)
    assert done.status == 2
    assert done.err.startswith("cascade: ")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_neither_table_nor_records_is_nothing_to_fit_on(command: Command, tmp_path: Path) -> None:
    """One of them has to be named."""
    done = _calibrate(command, tmp_path)
    assert (done.status, done.err) == (2, "cascade: name either --table or --from-records\n")


def test_a_target_without_a_price_is_told_after_the_calibration_is_written(command: Command, tmp_path: Path) -> None:
    """The calibration is there; the release is not."""
    alike = planted_table(30, 12, rel=None)
    table = _written(tmp_path, replace(alike, scores={**alike.scores, "large": alike.scores["small"]}))
    mine = tmp_path / "mine.yaml"
    release = ("--release", _release(tmp_path), "--release-out", str(mine))
    done = _calibrate(command, tmp_path, "--table", table, "--allow-few", *release)
    assert done.status == 2
    assert "--target: no price recovers 0.95; there are prices for none" in done.err
    assert (tmp_path / "c.json").exists()
    assert not mine.exists()
