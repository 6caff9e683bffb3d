"""Partitions replayed on a local Ray of two workers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from cascade.cli.eval_policy import policy_of_calibration
from cascade.cli.eval_workers import workers_of
from cascade.errors import ConfigError
from cascade.replay.evaluate import Question, evaluate
from cascade.replay.report import report
from cascade.replay.runs import Run, in_turn
from cascade.replay.source import source_on_disk
from cascade.replay.table import write_table
from tests.replay.made import ROLES, made_table
from tests.replay.made_calibration import made_calibration

pytestmark = pytest.mark.long

_QUESTION = Question(ROLES, k=5, resamples=1000)


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Run]:
    """Start a Ray of two workers once for this module, and stop it; without Ray its tests are skipped."""
    pytest.importorskip("ray", reason="ray is not installed (the extra ray)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        with workers_of("ray:2") as run:
            yield run


def _refused(number: int) -> int:
    if number == 3:
        raise ConfigError("the third is refused")
    return number * number


def _broken(number: int) -> int:
    raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore")
def test_the_report_is_the_same_to_the_last_byte(two_workers: Run, tmp_path: Path) -> None:
    """A calibrated policy on a file, in four partitions: two workers, and this process, and one partition."""
    path = tmp_path / "t.parquet"
    write_table(path, made_table(12, 12))
    calibration = made_calibration(second=True)
    policy = policy_of_calibration(calibration, 5)

    def told(run: Run, queries: int) -> bytes:
        source = source_on_disk(path, ROLES)
        done = evaluate({"t": source}, _QUESTION, calibration, policy, run=run, partition_queries=queries)
        return orjson.dumps(report(done))

    assert told(two_workers, 3) == told(in_turn, 12)


@pytest.mark.filterwarnings("ignore")
def test_results_come_in_order_and_items_are_asked_for_as_needed(two_workers: Run) -> None:
    """Not more than four items are taken before the first result is."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            yield number

    results = two_workers(abs, items())
    assert (next(results), len(taken)) == (0, 5)
    assert [*results] == [*range(1, 10)]


@pytest.mark.filterwarnings("ignore")
def test_what_is_refused_on_a_worker_is_refused_here(two_workers: Run) -> None:
    """As the same error, with the same words; another one stays what Ray makes of it."""
    with pytest.raises(ConfigError, match=r"^the third is refused$"):
        list(two_workers(_refused, [1, 2, 3]))
    with pytest.raises(ZeroDivisionError):
        list(two_workers(_broken, [1]))


def test_without_workers_partitions_are_replayed_here() -> None:
    """Nothing is started."""
    with workers_of(None) as run:
        assert list(run(_refused, [1, 2])) == [1, 4]


@pytest.mark.parametrize("written", ["dask", "ray:", "ray:0", "ray:two", "ray:-1", ""])
def test_another_way_to_run_is_refused(written: str) -> None:
    """What may be written is told."""
    with pytest.raises(ConfigError, match=r"^--workers: write ray, or ray:N with N local workers$"):
        workers_of(written)


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said where the extra is not there."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r"^--workers ray needs cascade-rerank\[ray\]; in a clone: "),
        workers_of("ray:2"),
    ):
        pass


def test_a_ray_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, no traceback."""
    pytest.importorskip("ray", reason="ray is not installed (the extra ray)")
    monkeypatch.setenv("RAY_ADDRESS", "not an address")
    with pytest.raises(ConfigError, match=r"^--workers ray: it cannot be started: \w+$"), workers_of("ray"):
        pass


def test_questions_may_differ_and_partitions_do_not(tmp_path: Path) -> None:
    """The least partition gives the report of the whole for a question of another depth and metric too."""
    question = replace(_QUESTION, roles=replace(ROLES, depth=7), k=3)
    path = tmp_path / "t.parquet"
    write_table(path, made_table(11, 9))
    reports = [
        orjson.dumps(report(evaluate({"t": source_on_disk(path, ROLES)}, question, partition_queries=queries)))
        for queries in (1, 11)
    ]
    assert reports[0] == reports[1]
