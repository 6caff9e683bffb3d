"""Exceptions that a boundary caught, as a counter and as lines."""

from __future__ import annotations

import io

import orjson
import pytest

from cascade.telemetry.faults import Faults
from cascade.telemetry.logs import configure_logging
from cascade.telemetry.metrics import Metrics
from tests.telemetry.captured import captured_log


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - whatever it is, it has a place now
        return caught


def _also_raised(error: Exception) -> Exception:
    try:
        return _raised(int("canary"))  # type: ignore[arg-type] # it raises before
    except ValueError as caught:
        return caught


def test_a_place_writes_one_line_a_second_and_counts_all() -> None:
    """A fault with every request does not fill the disk; another place, or class, has a line of its own."""
    now = [0.0]
    metrics = Metrics()
    with captured_log() as stream:
        faults = Faults(metrics, lambda: now[0])
        for now[0] in (0.0, 0.5, 0.99, 1.0, 1.5, 2.1):
            faults(_raised(KeyError("canary")))
        faults(_raised(TypeError("canary")))
        faults(_also_raised(TypeError("canary")))
        faults(ValueError("canary"))
    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["exception"] for line in lines] == [*["KeyError"] * 3, "TypeError", "ValueError", "ValueError"]
    assert [line["place"].split(":")[0] for line in lines] == [*[__name__] * 5, "(not raised)"]
    assert metrics.registry.get_sample_value("cascade_internal_faults_total") == 9
    assert b"canary" not in stream.getvalue()


class _FullDisk(io.BytesIO):
    def write(self, *_: object) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("closed", [False, True])
def test_a_fault_is_counted_where_no_line_can_be_written(closed: bool) -> None:
    """With the disk full, or the stream closed, telling of a fault is not one more."""
    metrics = Metrics()
    with captured_log():
        stream = _FullDisk()
        configure_logging("info", stream)
        if closed:
            stream.close()
        Faults(metrics, lambda: 0.0)(ValueError("canary"))
    assert metrics.registry.get_sample_value("cascade_internal_faults_total") == 1


def test_a_callback_of_a_loop_tells_of_its_fault_and_raises_nothing() -> None:
    """The loop would write it down in a form of its own, uncounted."""
    metrics = Metrics()
    called: list[int] = []
    faults = Faults(metrics, lambda: 0.0)

    def fails() -> None:
        called.append(1)
        raise ValueError("canary")

    with captured_log() as log:
        faults.counting(fails)()
        faults.counting(lambda: called.append(2))()
    assert called == [1, 2]
    assert b"cascade_internal_faults_total 1.0" in metrics.exposition()
    assert b"canary" not in log.getvalue()
