"""Traces of requests, from settings to spans that leave."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request

from cascade.errors import ConfigError, lacks_extra
from cascade.server.routes import RerankRoute
from cascade.server.service import Service
from cascade.server.trace_settings import TraceSettings
from cascade.telemetry.faults import Faults
from cascade.telemetry.span_schema import OPERATION, Attribute
from cascade.telemetry.spans import NOTHING, Opened
from cascade.telemetry.trace_log import SpanExport, TraceLog
from cascade.telemetry.trace_metrics import TraceMetrics
from cascade.telemetry.tracer import Sampling, Tracer

__all__ = ["Tracing", "check_tracing", "open_tracing", "request_span", "tell_status"]

_CLOSE_SECONDS: Final = 5.0
_HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*:\s*([ -~]*)")


@dataclass(frozen=True, slots=True)
class Tracing:
    """What begins traces, and what sends them."""

    tracer: Tracer
    _log: TraceLog

    async def aclose(self) -> None:
        """Send what waits, for some seconds at most."""
        await self._log.aclose(_CLOSE_SECONDS)


def open_tracing(settings: TraceSettings, metrics: TraceMetrics, faults: Faults) -> Tracing | None:
    """Return what traces requests, None where settings want none. Raises ConfigError."""
    export = _export(settings)
    if export is None:
        return None
    log = TraceLog(
        export,
        most=settings.trace_queue,
        count_exported=metrics.exported.inc,
        count_dropped=metrics.drop,
        count_fault=faults,
    )
    sampling = Sampling(
        ratio=settings.trace_ratio,
        trust_parent=settings.trace_trust_parent,
        keep=frozenset(settings.trace_keep),
        slow_ms=settings.trace_slow_ms,
        baggage=settings.trace_baggage,
    )
    return Tracing(Tracer(sampling, log.offer), log)


def check_tracing(settings: TraceSettings) -> None:
    """Read what traces need, without connecting. Raises ConfigError."""
    export = _export(settings)
    if export is not None:
        export.close()


def _export(settings: TraceSettings) -> SpanExport | None:
    if settings.tracing == "off" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        from cascade.telemetry.otlp import open_export
    except ImportError:
        raise lacks_extra("tracing: otlp needs", "otel") from None
    return open_export(settings.trace_endpoint, _headers_in(settings.trace_headers_file))


def _headers_in(file: Path | None) -> Mapping[str, str]:
    """Return the headers of a file. Raises ConfigError, which repeats nothing of it."""
    if file is None:
        return {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"trace_headers_file: cannot be read: {type(error).__name__}") from None
    headers = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _HEADER.fullmatch(line.strip())
        if found is None:
            raise ConfigError(f"trace_headers_file: line {number} is not `name: value`")
        headers[found[1]] = found[2]
    return headers


def request_span(service: Service, route: RerankRoute, http: Request) -> Opened:
    """Return the span of a request that is let in, to be entered at once."""
    if service.tracer is None:
        return NOTHING
    headers = http.headers
    span = service.tracer.begin(
        parents=headers.getlist("traceparent"),
        states=headers.getlist("tracestate"),
        baggage=headers.getlist("baggage"),
    )
    span.set(Attribute.METHOD, "POST")
    span.set(Attribute.ROUTE, route.path)
    span.set(Attribute.OPERATION, OPERATION)
    return span


def tell_status(span: Opened, status: int) -> None:
    """Set the status of an answer. It is a failure of this server from 500 on."""
    span.set(Attribute.STATUS, status)
    if status >= 500:
        span.fail(str(status))
