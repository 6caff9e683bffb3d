"""How long a batch of spans may take: one time for all that its sending does, before a collector that is slow or away."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from cascade.telemetry.otlp import open_export
from cascade.telemetry.spans import Span
from cascade.telemetry.trace_log import NotExported
from tests.certificates import issued
from tests.telemetry.collector import Collector, collecting
from tests.telemetry.traces import Traces

pytestmark = pytest.mark.usefixtures("no_otel_variables")


def _spans() -> list[Span]:
    traces = Traces()
    with traces.tracer.begin(parents=[], states=[]):
        pass
    return traces.only


def test_nobody_there_is_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that refuses connections, within the time that a batch has."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with pytest.raises(NotExported) as raised:
        open_export("http://127.0.0.1:9", {}).export(_spans())
    assert raised.value.why == "ConnectionError"


def test_a_collector_that_hangs_costs_a_batch_its_time(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is dropped."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    collector.hangs = True
    with pytest.raises(NotExported) as raised:
        open_export(collector.url, {}).export(_spans())
    assert raised.value.why == "ReadTimeout"


def test_an_answer_that_never_ends_costs_a_batch_its_time(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of it comes in time, and the whole does not: it is given up before the collector ends it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    collector.trickles = True
    with pytest.raises(NotExported) as raised:
        open_export(collector.url, {}).export(_spans())
    assert raised.value.why == "ReadTimeout"
    assert not collector.let_go.is_set()


def test_headers_that_never_end_cost_a_batch_its_time(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of them comes in time: given up before the collector ends them, and the next batch leaves as ever."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    collector.trickles_head = True
    export = open_export(collector.url, {})
    with pytest.raises(NotExported) as raised:
        export.export(_spans())
    assert raised.value.why == "ReadTimeout"
    assert not collector.let_go.is_set()
    collector.trickles_head = False
    assert export.export(_spans()) == 0


class _Names:
    """A resolver that knows one name. It hangs while ``answers`` is not set."""

    def __init__(self, *addresses: str) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        self._addresses = addresses
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "collector.test":
            return self._real(host, port, *args, **named)
        self.asked.set()
        self.answers.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self._addresses]


def test_a_name_that_is_not_found_in_time_costs_a_batch_its_time(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is given up before the resolver answers; once it does, the next one leaves."""
    names = _Names("127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", names)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    url = collector.url.replace("127.0.0.1", "collector.test")
    with pytest.raises(NotExported) as raised:
        open_export(url, {}).export(_spans())
    assert (raised.value.why, names.asked.is_set(), names.answers.is_set()) == ("ConnectTimeout", True, False)
    names.answers.set()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    assert open_export(url, {}).export(_spans()) == 0
    assert collector.heads[0]["host"].startswith("collector.test:")


def test_an_address_that_does_not_answer_leaves_time_for_the_others(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two addresses the first takes nobody in: the batch goes to the second in what is left of its time."""
    names = _Names("127.0.0.2", "127.0.0.1")
    names.answers.set()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    with ExitStack() as stack:
        _full(stack, ("127.0.0.2", int(collector.url.rpartition(":")[2])))
        assert open_export(collector.url.replace("127.0.0.1", "collector.test"), {}).export(_spans()) == 0
    assert collector.paths == ["/v1/traces"]


def _full(stack: ExitStack, address: tuple[str, int]) -> None:
    """Listen where no connection is taken from the line, and fill that."""
    listening = stack.enter_context(socket.create_server(address, backlog=0))
    assert listening.getsockname() == address
    for _ in range(4):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(address)


def test_a_collector_over_tls_takes_spans_and_one_that_never_shakes_hands_costs_a_batch_its_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The handshake is within the time of the batch, too; the authority is OpenTelemetry's variable's."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ca.pem"))
    files = issued(tmp_path / "server", authority)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(files.certificate, files.key)
    with collecting(tls=shown) as over_tls:
        export = open_export(over_tls.url, {})
        assert [export.export(_spans()) for _ in range(2)] == [0, 0]
    assert over_tls.paths == ["/v1/traces"] * 2
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotExported) as raised:
        open_export(f"https://127.0.0.1:{silent.getsockname()[1]}", {}).export(_spans())
    assert raised.value.why in {"ConnectTimeout", "ReadTimeout"}
