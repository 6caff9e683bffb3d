"""Send spans by OTLP over HTTP: the only module that imports OpenTelemetry (extra ``otel``), where tracing is asked for.

Only what `span_schema` lists is sent, with the resource and the headers of OpenTelemetry's own variables.
"""

from __future__ import annotations

import logging
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ReadTimeoutError

from cascade import __version__
from cascade.errors import ConfigError
from cascade.telemetry.span_schema import SCHEMA, SCHEMA_KEY, SpanName, admitted
from cascade.telemetry.spans import Span
from cascade.telemetry.timed_connection import Until, timed
from cascade.telemetry.trace_log import NotExported

__all__ = ["OtelExport", "open_export"]

_BASE: Final = "OTEL_EXPORTER_OTLP_"
_OF_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_"
_DEFAULT_ADDRESS: Final = "http://localhost:4318"
_PATH: Final = "/v1/traces"
_PROTOCOL: Final = "http/protobuf"
_COMPRESSIONS: Final = ("none", "gzip", "deflate")
_MOST_ANSWER_BYTES: Final = 65_536
_NO_NAME: Final = "unknown_service"
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_KINDS: Final = {SpanName.RERANK: SpanKind.SERVER, SpanName.CALL: SpanKind.CLIENT}
_TALKATIVE: Final = ("opentelemetry", "urllib3")
"""They log each batch that fails; the log of spans tells of the first."""


class OtelExport:
    """Export spans through an exporter of OpenTelemetry's SDK. ``session`` is what it sends with, where that is HTTP."""

    def __init__(self, exporter: SpanExporter, session: _Session | None = None) -> None:
        self._exporter = exporter
        self._session = session
        self._resource = _resource()
        self._scope = InstrumentationScope("cascade", __version__, attributes={SCHEMA_KEY: SCHEMA})

    def export(self, spans: Sequence[Span]) -> int:
        session = self._session
        if session is not None:
            session.refused, session.why = 0, "no_answer"
        if self._exporter.export([self._readable(span) for span in spans]) is not SpanExportResult.SUCCESS:
            raise NotExported("refused" if session is None else session.why)
        return 0 if session is None else min(session.refused, len(spans))

    def close(self) -> None:
        self._exporter.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=str(span.name),
            context=_context(span, span.id, is_remote=False),
            parent=None if span.parent_id is None else _context(span, span.parent_id, is_remote=span.is_root),
            resource=self._resource,
            attributes=admitted(span.name, span.attributes),
            kind=_KINDS.get(span.name, SpanKind.INTERNAL),
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )


def _context(span: Span, span_id: int, *, is_remote: bool) -> SpanContext:
    """Return what names a span. A caller's ``tracestate`` goes to servers, and not to the collector."""
    return SpanContext(span.trace.trace_id, span_id, is_remote, _SAMPLED)


def _resource() -> Resource:
    """Return what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say of this process, and what they leave open."""
    found = Resource.create()
    own = Resource({SERVICE_VERSION: __version__, SERVICE_INSTANCE_ID: uuid.uuid4().hex})
    joined = own.merge(found)
    if str(found.attributes[SERVICE_NAME]).startswith(_NO_NAME):
        joined = joined.merge(Resource({SERVICE_NAME: "cascade"}))
    return joined


class _Adapter(HTTPAdapter):
    """Have all of a request over by ``until``."""

    def __init__(self) -> None:
        super().__init__()
        self.until = Until()

    def get_connection_with_tls_context(self, *args: Any, **named: Any) -> HTTPConnectionPool:
        pool = super().get_connection_with_tls_context(*args, **named)
        if "ConnectionCls" not in vars(pool):
            pool.ConnectionCls = timed(pool.ConnectionCls, self.until)
        return pool


class _Session(requests.Session):
    """Send to the one address: no redirect is followed, and no proxy or credential of the environment used.

    Of an answer a bounded part is read, and all that a request takes has one time. ``why`` tells why the last one does not
    count, ``refused`` how many spans it refused in part.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.why = ""
        self.refused = 0
        self._adapter = _Adapter()
        for scheme in ("http://", "https://"):
            self.mount(scheme, self._adapter)

    def request(self, *args: Any, **named: Any) -> requests.Response:
        self._adapter.until.at = time.monotonic() + float(named["timeout"])
        try:
            response = super().request(*args, **named | {"stream": True, "allow_redirects": False})
            body = _beginning(response)
        except Exception as error:
            self.why = type(error).__name__
            raise
        whole = len(body) <= _MOST_ANSWER_BYTES
        response._content, response._content_consumed = b"", whole  # noqa: SLF001 - it was read here
        response.close()
        self.why = f"status_{response.status_code}"
        if response.status_code >= 400:
            return response  # some of those the exporter tries again
        if response.status_code < 300:
            refused = _refused_in(body) if whole else None
            if refused is not None:
                self.refused = refused
                return response
            self.why = "not_a_collector"
        raise requests.RequestException(self.why)  # the exporter would take it for success


def _beginning(response: requests.Response) -> bytes:
    """Return what an answer holds, or as much as tells that it is too much."""
    body = b""
    try:
        while len(body) <= _MOST_ANSWER_BYTES and (
            part := response.raw.read1(_MOST_ANSWER_BYTES + 1, decode_content=True)
        ):
            body += part
    except ReadTimeoutError:
        raise requests.ReadTimeout from None
    return body


def _refused_in(body: bytes) -> int | None:
    """Return how many spans a collector's answer refuses, None where it is no such answer."""
    try:
        if body.lstrip().startswith(b"{"):
            refused = int(orjson.loads(body).get("partialSuccess", {}).get("rejectedSpans", 0))
        else:
            refused = int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except (ValueError, TypeError, AttributeError, OverflowError, DecodeError):
        return None
    return refused if refused >= 0 else None


def open_export(address: str | None, headers: Mapping[str, str]) -> OtelExport:
    """Return an export to a collector, not yet asked: ``address`` and ``headers``, else what OpenTelemetry's variables say.

    Raises ConfigError, which does not repeat an address or a header.
    """
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    protocol = _variable("PROTOCOL") or _PROTOCOL
    if protocol != _PROTOCOL:
        raise ConfigError(f"tracing: {_BASE}PROTOCOL asks for another protocol than {_PROTOCOL}, the only one here")
    for kind in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        path = _variable(kind)
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"tracing: {_BASE}{kind} names no file")
    if not _is_time(_variable("TIMEOUT") or "10"):
        raise ConfigError(f"tracing: {_BASE}TIMEOUT is no time in seconds above 0")
    if (_variable("COMPRESSION") or "none").strip().lower() not in _COMPRESSIONS:
        raise ConfigError(f"tracing: {_BASE}COMPRESSION is none of {', '.join(_COMPRESSIONS)}")
    session = _Session()
    exporter = OTLPSpanExporter(endpoint=_address(address), headers=headers, session=session)
    return OtelExport(exporter, session)


def _is_time(value: str) -> bool:
    try:
        return 0 < float(value) < math.inf
    except ValueError:
        return False


def _variable(kind: str) -> str | None:
    return os.environ.get(_OF_TRACES + kind) or os.environ.get(_BASE + kind) or None


def _address(asked: str | None) -> str:
    """Return where spans are sent: as asked, with the usual path where none is; else as the variables say."""
    of_traces = os.environ.get(f"{_OF_TRACES}ENDPOINT")
    if asked is not None:
        address = asked if urlsplit(asked).path.strip("/") else asked.rstrip("/") + _PATH
    elif of_traces:
        address = of_traces
    else:
        address = (os.environ.get(f"{_BASE}ENDPOINT") or _DEFAULT_ADDRESS).rstrip("/") + _PATH
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError("tracing: the collector's address is no http(s) address")
    return address
