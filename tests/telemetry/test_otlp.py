"""OTLP over HTTP, before a collector that reads it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cascade import __version__
from cascade.errors import ConfigError
from cascade.telemetry.otlp import OtelExport, open_export
from cascade.telemetry.span_schema import SCHEMA, Attribute, SpanName
from cascade.telemetry.spans import Span, child
from cascade.telemetry.trace_log import NotExported
from tests.telemetry.collector import Collector
from tests.telemetry.traces import Traces

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


pytestmark = pytest.mark.usefixtures("no_otel_variables")


def _spans() -> list[Span]:
    traces = Traces()
    with traces.tracer.begin(parents=[_PARENT], states=["congo=kingfisher"]) as root:
        root.set(Attribute.CANDIDATES, 4)
        root.set(Attribute.DEGRADED, True)
        root.set(Attribute.DEGRADED_REASONS, ("stage_timeout", "load_level"))
        root.set(Attribute.VERDICT, "kingfisher")  # of another span
        with child(SpanName.CALL) as call:
            call.set(Attribute.STATUS, 503)
            call.set(Attribute.ROOM_MS, 1.5)
            call.fail("503")
    return traces.only


def test_h7_spans_arrive_with_what_is_listed_and_nothing_else(collector: Collector) -> None:
    """Names, kinds, parents, status, typed attributes, resource and the version of the schema; no state, event or message."""
    assert open_export(collector.url, {}).export(_spans()) == 0
    call, root = collector.spans
    assert collector.paths == ["/v1/traces"]
    assert collector.heads[0]["content-type"] == "application/x-protobuf"
    assert (root.name, root.kind, root.failed, root.parent_id) == ("rerank", 2, False, "b7ad6b7169203331")
    assert root.attributes == {
        "gen_ai.rerank.candidate.count": 4,
        "cascade.degraded": True,
        "cascade.degraded.reasons": ["stage_timeout", "load_level"],
        "cascade.sampled_by": "ratio",
    }
    assert (call.name, call.kind, call.failed, call.parent_id) == ("call", 3, True, root.span_id)
    assert call.attributes == {"http.response.status_code": 503, "cascade.room_ms": 1.5, "error.type": "503"}
    assert root.trace_id == call.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert root.scope == {"name": "cascade", "cascade.spans.schema": SCHEMA}
    assert (root.resource["service.name"], root.resource["service.version"]) == ("cascade", __version__)
    assert root.resource["service.instance.id"]
    assert {(span.message, span.trace_state, span.events) for span in collector.spans} == {("", "", 0)}
    assert root.ms >= call.ms >= 0
    assert b"kingfisher" not in collector.bodies[0]


def test_any_exporter_of_the_sdk_can_take_the_spans() -> None:
    """They are spans of OpenTelemetry's SDK."""
    exporter = InMemorySpanExporter()
    assert OtelExport(exporter).export(_spans()) == 0
    call, root = exporter.get_finished_spans()
    assert (root.kind, call.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert call.status.status_code is StatusCode.ERROR
    assert call.parent is not None
    assert root.context is not None
    assert call.parent.span_id == root.context.span_id
    assert root.parent is not None
    assert root.parent.is_remote
    exporter.shutdown()
    with pytest.raises(NotExported):
        OtelExport(exporter).export(_spans())


def test_variables_of_opentelemetry_say_where_and_as_whom(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endpoint, headers, compression, service and resource, as its documentation says."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{collector.url}/base/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret,x-team=search")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "reranking")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.instance.id=pod-1")
    open_export(None, {}).export(_spans())
    assert collector.paths == ["/base/v1/traces"]
    head = collector.heads[0]
    assert (head["authorization"], head["x-team"], head["content-encoding"]) == ("Bearer secret", "search", "gzip")
    resource = collector.spans[0].resource
    assert (resource["service.name"], resource["deployment.environment"]) == ("reranking", "test")
    assert resource["service.instance.id"] == "pod-1"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/mine")
    open_export(None, {}).export(_spans())
    open_export(collector.url, {"X-Team": "other"}).export(_spans())
    open_export(f"{collector.url}/own/path", {}).export(_spans())
    assert collector.paths[1:] == ["/mine", "/v1/traces", "/own/path"]
    assert collector.heads[2]["x-team"] == "other"


def test_a_service_name_among_the_resource_attributes_counts(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar's own name is for where none is told."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")
    open_export(collector.url, {}).export(_spans())
    assert collector.spans[0].resource["service.name"] == "mine"


def test_no_proxy_or_credential_of_the_environment_is_used(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """What other programs are told of proxies and passwords is not for spans."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login kingfisher password secret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert open_export(collector.url, {}).export(_spans()) == 0
    assert "authorization" not in collector.heads[0]


def _refusing(count: int) -> bytes:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = count
    answer.partial_success.error_message = "kingfisher"
    return bytes(answer.SerializeToString())


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b"kingfisher", "status_500"),
        (400, b"", "status_400"),
        (302, b"", "status_302"),
        (200, b"<html>kingfisher</html>", "not_a_collector"),
        (200, b"x" * 100_000, "not_a_collector"),
        (200, b"{not JSON", "not_a_collector"),
        (200, b'{"partialSuccess": 3}', "not_a_collector"),
        (200, b'{"partialSuccess": {"rejectedSpans": "-3"}}', "not_a_collector"),
        (200, _refusing(-5), "not_a_collector"),
    ],
)
def test_an_answer_that_is_no_collectors_is_not_counted_as_taken(
    collector: Collector, status: int, body: bytes, why: str
) -> None:
    """A redirect is not followed, and what a server wrote is not repeated."""
    collector.status, collector.body = status, body
    collector.headers = {"location": f"{collector.url}/elsewhere"}
    with pytest.raises(NotExported) as raised:
        open_export(collector.url, {"x-secret": "kingfisher"}).export(_spans())
    assert raised.value.why == why
    assert collector.paths == ["/v1/traces"]


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"", 0),
        (_refusing(1), 1),
        (_refusing(99), 2),
        (b"{}", 0),
        (orjson.dumps({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "kingfisher"}}), 1),
    ],
)
def test_a_collector_may_refuse_a_part(collector: Collector, body: bytes, refused: int) -> None:
    """It says how many, in either form; never more than there were."""
    collector.body = body
    assert open_export(collector.url, {}).export(_spans()) == refused


def test_connections_are_kept_between_batches(collector: Collector) -> None:
    """An answer that was read gives its connection back."""
    export = open_export(collector.url, {})
    session = export._session
    assert session is not None
    for _ in range(3):
        export.export(_spans())
    pools = session.get_adapter(collector.url).poolmanager.pools  # type: ignore[attr-defined]
    (pool,) = (pools[key] for key in pools.keys())  # noqa: SIM118 - it is no mapping
    assert (pool.num_connections, pool.num_requests) == (1, 3)
    export.close()


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "kingfisher:4317"}, "no http"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[kingfisher"}, "no http"),
        ({"OTEL_EXPORTER_OTLP_CERTIFICATE": "/kingfisher"}, "OTEL_EXPORTER_OTLP_CERTIFICATE names no file"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "kingfisher"}, "OTEL_EXPORTER_OTLP_TIMEOUT"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "0"}, "OTEL_EXPORTER_OTLP_TIMEOUT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "nan"}, "OTEL_EXPORTER_OTLP_TIMEOUT"),
        ({"OTEL_EXPORTER_OTLP_COMPRESSION": "kingfisher"}, "OTEL_EXPORTER_OTLP_COMPRESSION"),
        ({"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": "/kingfisher"}, "OTEL_EXPORTER_OTLP_CLIENT_KEY names no file"),
    ],
)
def test_variables_that_cannot_be_used_are_an_error_at_the_start(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str
) -> None:
    """It names the variable, and does not repeat its value."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=told) as raised:
        open_export(None, {})
    assert "kingfisher" not in str(raised.value)


_WITHOUT = """
import sys
from cascade.server.building import built_service
from cascade.server.settings import Settings
from cascade.server.tracing import open_tracing
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
metrics = Metrics()
faults = Faults(metrics, lambda: 0.0)
assert open_tracing(Settings(), metrics.traces, faults) is None
assert not [name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "requests", "google")]
sys.modules["opentelemetry"] = None
try:
    open_tracing(Settings(tracing="otlp"), metrics.traces, faults)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_tracing_nothing_of_opentelemetry_is_imported_and_without_the_extra_the_start_says_so() -> None:
    """In a process of its own: other tests have imported it."""
    ended = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=False, timeout=120)
    told = 'ConfigError tracing: otlp needs cascade-rerank[otel]; in a clone: pip install ".[otel]"'
    assert (ended.stderr, ended.stdout.strip()) == ("", told)
