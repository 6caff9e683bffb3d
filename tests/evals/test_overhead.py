"""The pure parts of the overhead benchmark: loads, logs, figures, configurations, shares."""

from __future__ import annotations

import orjson
import pytest

from cascade.policy.release import parse_release
from evals.bench.figures import Cell, aims, medians, spread, table
from evals.bench.generator import Sample, Sent, closed_loop, open_loop, parse_log, percentile, sample
from evals.bench.loads import LARGE, LOADS, Load, Shape, body, calls, with_services
from evals.bench.overhead import Run, measured, plan
from evals.bench.processes import parse_stat
from evals.bench.shares import by_function, by_package, parse_stacks
from evals.bench.targets import TARGETS, release, score_answers


def _cell(added: float, *, per_second: float = 200.0, failed: int = 0) -> Cell:
    return Cell(added, added * 2, 900.0, per_second, failed)


def _run(p50_ms: float) -> Run:
    return Run(Sample(requests=10, failed=0, p50_ms=p50_ms, p99_ms=p50_ms * 3, per_second=20.0), cpu_us=700.0)


def test_added_latency_of_a_deciding_sidecar_is_what_both_calls_leave() -> None:
    """The fake's medians with 50 and with 20 documents are both taken off, of the median and of the 99th percentile."""
    load = next(load for load in LOADS if load.name == "rate-200")
    cell = measured(load, "deciding", _run(2.0), {"rate-200": 0.3, "rate-200-docs-20": 0.2})
    assert cell.added_p50_ms == pytest.approx(1.5)
    assert cell.added_p99_ms == pytest.approx(5.5)
    assert cell.cpu_us == 700.0


def test_added_latency_straight_at_the_fake_is_zero() -> None:
    """Its 99th percentile is what generator and machine scatter by themselves."""
    load = next(load for load in LOADS if load.name == "rate-200")
    cell = measured(load, "direct", _run(0.3), {"rate-200": 0.3})
    assert cell.added_p50_ms == 0
    assert cell.added_p99_ms == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("target", "documents", "on_path"),
    [("deciding", 50, (50, 20)), ("deciding", 20, (20, 20)), ("deciding", 200, (50, 20)), ("nginx", 200, (200,))],
)
def test_calls_on_the_path_follow_depth_and_escalation(target: str, documents: int, on_path: tuple[int, ...]) -> None:
    """A deciding sidecar asks for the depth and then for the top of it; everything else asks once for all."""
    assert calls(target, documents) == on_path


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_every_load_brings_the_runs_that_tell_its_service_time(load: Load) -> None:
    """Whatever loads are chosen, the ones that their figures are computed from run too."""
    chosen = {entry.name for entry in with_services((load.name,))}
    for target in TARGETS:
        assert {load.service[count] for count in calls(target, load.shape.documents)} <= chosen


def test_an_unknown_load_is_named() -> None:
    """A mistyped load is refused with its name."""
    with pytest.raises(ValueError, match="unknown loads: rate-9"):
        with_services(("rate-9",))


def test_every_target_has_its_turn_in_each_repetition() -> None:
    """Each load meets every target once, the first one another in the next repetition; support loads only the fake."""
    loads = with_services(("rate-20",))
    first, second = (plan(loads, ("direct", "nginx", "litellm"), repetition) for repetition in (0, 1))
    of_load = [target for load, target in first if load.name == "rate-20"]
    assert sorted(of_load) == ["direct", "litellm", "nginx"]
    assert [target for load, target in first if load.support] == ["direct"]
    assert [target for load, target in second if load.name == "rate-20"] != of_load


def test_bodies_have_the_documents_and_characters_of_their_shape() -> None:
    """Korean has as many characters as English, and so three times the bytes or nearly."""
    english, korean = (orjson.loads(body(Shape(20, language))) for language in ("en", "ko"))
    assert [len(document) for document in english["documents"]] == [600] * 20
    assert [len(document) for document in korean["documents"]] == [600] * 20
    assert english["model"] == "documents-20"
    assert len(set(english["documents"])) == 20
    assert len(body(LARGE)) > 5_000_000


def test_open_loops_space_their_clients() -> None:
    """Forty clients at five a second each, one begun every five milliseconds."""
    assert open_loop(200, 1000) == ["-c", "40", "--rate-period=5ms", "-r", "1", "--rps=5", "-n", "1000"]
    assert open_loop(2, 10) == ["-c", "1", "--rps=2", "-n", "10"]


def test_every_client_of_a_closed_loop_sends() -> None:
    """There are never fewer requests than clients."""
    assert closed_loop(64, 10) == ["-c", "64", "-n", "64"]


def test_logs_are_read_to_their_last_whole_line() -> None:
    """A line that was cut off is no request."""
    assert parse_log("100\t200\t7\n101\t503\t9\n102\t2") == [Sent(100, 200, 7), Sent(101, 503, 9)]


def test_percentiles_are_values_that_occurred() -> None:
    """The nearest rank: of 100 values the 99th, of one that one."""
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([4.0], 0.99) == 4.0


def test_only_answers_with_200_are_timed() -> None:
    """Refusals and losses count as failed, however fast they were."""
    told = sample([Sent(0, 200, 2000), Sent(500_000, 503, 1), Sent(998_000, 200, 2000)], requests=4)
    assert (told.failed, told.p50_ms, told.per_second) == (2, 2.0, 2.0)
    with pytest.raises(RuntimeError, match="no request"):
        sample([Sent(0, 503, 1)], requests=1)


def test_processor_time_is_read_past_any_name() -> None:
    """A command's name may hold spaces and brackets."""
    line = "42 (a (b) c) S 7 42 42 0 -1 0 0 0 0 0 150 25 9 9 20 0 1 0 1 1 1"
    assert parse_stat(line) == (7, 175)


def test_medians_and_spread_run_over_repetitions() -> None:
    """The middle one of three, and the two ends."""
    runs = {"nginx": {"rate-20": [_cell(0.3), _cell(0.1), _cell(0.2)]}}
    assert medians(runs)["nginx"]["rate-20"]["added_p50_ms"] == 0.2
    assert spread(runs)["nginx"]["rate-20"]["added_p50_ms"] == [0.1, 0.3]


def test_tables_mark_what_was_not_answered_as_asked() -> None:
    """A star for a rate that was not kept up with, an exclamation mark for failed requests."""
    runs = {"slow": {"rate-200": [_cell(30.0, per_second=90.0, failed=1)]}, "fast": {"rate-200": [_cell(1.0)]}}
    last = table(runs, "added_p50_ms", digits=1, asked={"rate-200": 200}).splitlines()[-1]
    assert last == "| rate-200 | 30.0*! (30.0 to 30.0) | 1.0 (1.0 to 1.0) |"


def test_aims_are_told_where_there_are_figures() -> None:
    """A run without LiteLLM says nothing of it."""
    told = aims(
        medians({"pass-through": {"rate-200": [_cell(0.8)]}, "nginx": {"rate-200": [_cell(0.2)]}, "litellm": {}})
    )
    assert told == [
        "pass-through at 200/s: 0.80 ms added at the median; at most 1.0 ms is the aim",
        "pass-through to nginx at 200/s: 4.0 times; at most 6 is the aim",
    ]


@pytest.mark.parametrize("documents", [20, 50, 200])
def test_the_fake_scores_every_document_once_in_every_format(documents: int) -> None:
    """All scores differ, so that an order can be told from them."""
    for path, answer in score_answers(documents).items():
        told = orjson.loads(answer)
        listed = told if isinstance(told, list) else told.get("data") or told["results"]
        assert sorted(item["index"] for item in listed) == list(range(documents))
        assert len({item.get("score", item.get("relevance_score")) for item in listed}) == documents
        assert f"/{documents}/" in path
        assert b"'" not in answer
        assert b"$" not in answer


@pytest.mark.parametrize(("target", "small"), [("pass-through", False), ("deciding", True)])
def test_releases_of_the_benchmark_are_valid(target: str, small: bool) -> None:
    """The sidecar takes them, and the stages' counts are in their addresses."""
    told = release(target, 50, "http://127.0.0.1:1")
    parsed = parse_release(told)
    assert (parsed.stages.small is not None) is small
    assert told["stages"]["large"]["url"].endswith("/20" if small else "/50")


def test_samples_are_shared_out_by_package_and_function() -> None:
    """A function that calls itself counts once a stack; the innermost frame names the package."""
    raw = (
        "main (cascade/cli/serve.py);rerank (cascade/pipeline.py);rerank (cascade/pipeline.py) 6\n"
        "main (cascade/cli/serve.py);send (/x/site-packages/httpx/_client.py);run (asyncio/runners.py) 3\n"
        "not a stack\n"
    )
    stacks = parse_stacks(raw)
    assert by_package(stacks) == {"cascade": 6, "asyncio": 3}
    assert by_function(stacks) == {"cli/serve.py main": 9, "pipeline.py rerank": 6}
