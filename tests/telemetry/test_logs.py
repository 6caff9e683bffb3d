"""What is logged: one line a decision, and of libraries that they spoke, not what they said."""

from __future__ import annotations

import io
import logging
from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from cascade.decision import Decision, DegradedReason
from cascade.telemetry.logs import configure_logging, decision_record, get_logger, log_decision, note
from cascade.text import Text
from cascade.types import StageName
from tests.telemetry.captured import captured_log
from tests.telemetry.decisions import decision, decisions, round_of

_CANARY = "canary-5f3a"
_RECORD_KEYS = {
    "decision_id",
    "dialect",
    "release",
    "arm",
    "load_level",
    "tenant",
    "query_hash",
    "candidates",
    "top_n",
    "depth",
    "depth_reason",
    "action",
    "estimates",
    "misfit",
    "query_class",
    "signals",
    "escalated",
    "stage",
    "degraded",
    "excluded",
    "effective_pairs",
    "cached_pairs",
    "tokens",
    "truncated_pairs",
    "rank_changes_at_5",
    "deadline_ms",
    "total_ms",
    "own_ms",
    "rounds",
}
_ROUND_KEYS = {"stage", "model", "sent", "scored", "blank", "refused", "outcome", "code", "elapsed_ms"}
_COST_KEYS = {"calls", "tokens", "tokens_estimated", "truncated", "cached", "windows", "padding", "repaired"}


def _lines(stream: io.BytesIO) -> list[dict[str, Any]]:
    """Return the lines of a log, each parsed as JSON."""
    written = stream.getvalue()
    assert not written or written.endswith(b"\n")
    return [orjson.loads(line) for line in written.splitlines()]


@settings(deadline=None)
@given(decisions)
def test_a_decision_is_exactly_one_json_line_with_a_closed_set_of_keys(made: Decision) -> None:
    """Whatever was decided, one line says it, and no key is added or missing."""
    with captured_log("info") as stream:
        log_decision(made)
    (line,) = _lines(stream)
    assert set(line) == _RECORD_KEYS | {"event", "level", "timestamp", "outcome", "client_request_id"}
    assert (line["event"], line["level"]) == ("rerank", "info")
    assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None
    for item, written in zip(made.rounds, line["rounds"], strict=True):
        assert set(written) == (_ROUND_KEYS | _COST_KEYS | {"compute_ms"} if item.cost else _ROUND_KEYS)


def test_a_record_holds_the_decisions_values() -> None:
    """Pairs, tokens and truncated pairs are summed over rounds, milliseconds rounded to a thousandth."""
    made = decision(
        tenant="acme",
        degraded=(DegradedReason.STAGE_TIMEOUT,),
        rounds=(round_of(), round_of(StageName.LARGE, scored=0, outcome="stage_timeout", code="deadline", cost=None)),
    )
    assert decision_record(made) == {
        "decision_id": "id-1",
        "dialect": "native",
        "release": "r1",
        "arm": "stable",
        "load_level": "normal",
        "tenant": "acme",
        "query_hash": "hash",
        "candidates": 10,
        "top_n": 5,
        "depth": 10,
        "depth_reason": "fixed",
        "action": "cluster",
        "estimates": {
            "k": 10,
            "p_first": 0.9,
            "margin": 0.25,
            "entropy": 1.5,
            "expected_loss": 0.03125,
            "p_acceptable": None,
        },
        "misfit": None,
        "query_class": None,
        "signals": {"bm25.gap": 0.5},
        "escalated": [3, 1],
        "stage": "large",
        "degraded": ["stage_timeout"],
        "excluded": 3,
        "effective_pairs": 7,
        "cached_pairs": 0,
        "tokens": 120,
        "truncated_pairs": 3,
        "rank_changes_at_5": 4,
        "deadline_ms": 100.0,
        "total_ms": 30.123,
        "own_ms": 0.988,
        "rounds": [
            {
                "stage": "small",
                "model": "m",
                "sent": 8,
                "scored": 7,
                "blank": 2,
                "refused": 1,
                "outcome": "ok",
                "code": "",
                "elapsed_ms": 12.346,
                "calls": 2,
                "tokens": 120,
                "tokens_estimated": False,
                "truncated": 3,
                "compute_ms": 1.235,
                "cached": 0,
                "windows": 0,
                "padding": 0,
                "repaired": 0,
            },
            {
                "stage": "large",
                "model": "m",
                "sent": 8,
                "scored": 0,
                "blank": 2,
                "refused": 1,
                "outcome": "stage_timeout",
                "code": "deadline",
                "elapsed_ms": 12.346,
            },
        ],
    }


def test_a_round_that_timed_out_as_it_waited_says_how_long() -> None:
    """Where it is known; the other costs of such a round are not."""
    fields: dict[str, Any] = {"outcome": "stage_timeout", "code": "deadline", "scored": 0, "cost": None}
    waited = (round_of(queue_ms=49.87654, **fields), round_of(room_ms=12.34567, **fields), round_of(**fields))
    told = decision_record(decision(rounds=waited))["rounds"]
    assert [set(item) - _ROUND_KEYS for item in told] == [{"queue_ms"}, {"room_ms"}, set()]
    assert (told[0]["queue_ms"], told[1]["room_ms"]) == (49.877, 12.346)


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_not_written(level: str, written: list[str]) -> None:
    """The level holds for our own lines and for those of libraries alike."""
    with captured_log(level) as stream:
        for name in ("debug", "info", "warning", "error"):
            getattr(get_logger(), name)("ours")
            getattr(logging.getLogger("some.library"), name)("theirs")
    lines = _lines(stream)
    assert [line["level"] for line in lines if line["event"] == "ours"] == written
    assert [line["level"] for line in lines if line["event"] == "library"] == written


def test_a_decision_is_not_logged_above_info() -> None:
    """At warning and error, requests leave no line."""
    with captured_log("warning") as stream:
        log_decision(decision())
    assert stream.getvalue() == b""


@pytest.mark.parametrize("name", ["httpx", "httpcore.connection", "uvicorn.error", "asyncio", "some.library", None])
def test_g1_of_a_library_only_name_level_and_kind_come_out(name: str | None) -> None:
    """Message, arguments, extras, exception text and stack of a library's record are not written."""
    with captured_log("debug") as stream:
        try:
            raise ValueError(_CANARY)
        except ValueError:
            logging.getLogger(name).exception("canary-5f3a %s", _CANARY, stack_info=True, extra={"body": _CANARY})
    (line,) = _lines(stream)
    del line["timestamp"]
    assert line == {"event": "library", "level": "error", "logger": name or "root", "exception": "ValueError"}


def test_a_library_without_an_exception_has_none_in_its_line() -> None:
    """Where nothing was raised, no kind is told."""
    with captured_log("debug") as stream:
        logging.getLogger("some.library").warning("text")
    assert [line["exception"] for line in _lines(stream)] == [None]


@pytest.mark.parametrize(
    ("number", "level"),
    [(10, "debug"), (15, "debug"), (25, "info"), (35, "warning"), (45, "error"), (50, "critical"), (99, "critical")],
)
def test_a_librarys_own_level_is_rounded_down(number: int, level: str) -> None:
    """A level between the usual ones, which libraries may define, is logged and breaks nothing."""
    with captured_log("debug") as stream:
        logging.getLogger("some.library").log(number, "text")
    assert [line["level"] for line in _lines(stream)] == [level]


@pytest.mark.parametrize("name", ["httpx", "httpcore", "aiohttp", "asyncio", "uvicorn", "uvicorn.access"])
def test_libraries_that_log_every_request_are_held_to_warnings(name: str) -> None:
    """Even at debug, the request lines of HTTP libraries do not come out."""
    with captured_log("debug") as stream:
        logging.getLogger(name).info("GET /")
        logging.getLogger(name).warning("trouble")
    assert [line["level"] for line in _lines(stream)] == ["warning"]


def test_handlers_that_a_library_brought_are_removed() -> None:
    """A library's own handler would write its messages beside our lines."""
    own = io.StringIO()
    logger = logging.getLogger("uvicorn.error")
    handler = logging.StreamHandler(own)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with captured_log("info") as stream:
            logger.error(_CANARY)
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
    assert own.getvalue() == ""
    assert [line["logger"] for line in _lines(stream)] == ["uvicorn.error"]


def test_g1_no_exception_text_comes_out_of_our_own_lines() -> None:
    """Exceptions in any place of a line are reduced to their kind, and tracebacks dropped."""
    with captured_log("debug") as stream:
        log = get_logger()
        error = ValueError(_CANARY)
        log.error("direct", error=error, nested={"errors": [error, Text(_CANARY)]}, body=_CANARY.encode())
        log.error("traceback", exc_info=error, stack_info=True, exception_text=_CANARY)
        log.error(error)  # type: ignore[arg-type]
        try:
            raise error
        except ValueError:
            log.exception("handled")
    assert _CANARY not in stream.getvalue().decode()
    first = _lines(stream)[0]
    assert (first["error"], first["nested"]) == ("ValueError", {"errors": ["ValueError", "Text"]})
    assert first["body"] == "bytes"
    assert {key for line in _lines(stream)[1:] for key in line} == {"event", "level", "timestamp"}
    assert [line["event"] for line in _lines(stream)] == ["direct", "traceback", "ValueError", "handled"]


def test_a_logger_made_before_configuring_follows_the_configuration() -> None:
    """Modules may keep a logger: it is not bound to the configuration of its making."""
    kept = get_logger()
    with captured_log("info") as stream:
        kept.info("late")
    assert [line["event"] for line in _lines(stream)] == ["late"]


class _FullDisk(io.BytesIO):
    def write(self, *_: Any) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("closed", [False, True])
def test_a_line_of_the_process_or_a_library_that_cannot_be_written_is_lost_alone(closed: bool) -> None:
    """Neither start and stop nor a library fail for a full disk or a closed stream."""
    with captured_log():
        stream = _FullDisk()
        configure_logging("info", stream)
        if closed:
            stream.close()
        note("error", "stopping", drain_seconds=1.0)
        logging.getLogger("uvicorn.error").error("text")


def test_a_line_of_the_process_has_its_level_and_fields() -> None:
    """A note is a line like any other."""
    with captured_log("info") as stream:
        note("warning", "stage not reached yet", stage="small")
    (line,) = _lines(stream)
    del line["timestamp"]
    assert line == {"event": "stage not reached yet", "level": "warning", "stage": "small"}


def test_a_refused_decision_says_so_in_its_line() -> None:
    """The outcome tells a fail-closed answer from a degraded one."""
    with captured_log("info") as stream:
        log_decision(decision(), outcome="refused", client_request_id="r1")
    (line,) = _lines(stream)
    assert (line["outcome"], line["client_request_id"]) == ("refused", "r1")
