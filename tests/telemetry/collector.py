"""A collector on a real socket: it reads what OTLP sends, and answers as a test says."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector", "Taken", "collecting"]


@dataclass(frozen=True, slots=True)
class Taken:
    """One span as it was received, with what stands around it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    failed: bool
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    scope: Mapping[str, Any]
    message: str
    trace_state: str
    events: int
    ms: float


@dataclass
class Collector:
    """What a collector got. ``status``, ``body`` and ``headers`` are what it answers.

    It ``hangs`` until it is let go, or ``trickles``: its answer comes byte by byte until then. With ``trickles_head`` a header of
    it does, for some seconds.
    """

    url: str = ""
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    trickles: bool = False
    trickles_head: bool = False
    let_go: threading.Event = field(default_factory=threading.Event)
    came: threading.Condition = field(default_factory=threading.Condition)
    heads: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def spans(self) -> list[Taken]:
        """Return every span received, in the order received."""
        return [span for body in list(self.bodies) for span in _spans_in(body)]

    def wait_for(self, count: int, seconds: float = 20.0) -> list[Taken]:
        """Return the spans once there are so many."""
        with self.came:
            self.came.wait_for(lambda: len(self.spans) >= count, seconds)
        assert len(self.spans) >= count
        return self.spans

    def take(self, path: str, head: dict[str, str], body: bytes) -> None:
        """Keep a request."""
        with self.came:
            self.paths.append(path)
            self.heads.append(head)
            self.bodies.append(gzip.decompress(body) if head.get("content-encoding") == "gzip" else body)
            self.came.notify_all()


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    told = getattr(value, kind)
    return [_value(each) for each in told.values] if kind == "array_value" else told


def _spans_in(body: bytes) -> Iterator[Taken]:
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Taken(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    kind=span.kind,
                    failed=span.status.code == 2,
                    attributes=_plain(span.attributes),
                    resource=_plain(of_resource.resource.attributes),
                    scope={"name": of_scope.scope.name} | _plain(of_scope.scope.attributes),
                    message=span.status.message,
                    trace_state=span.trace_state,
                    events=len(span.events) + len(span.links),
                    ms=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e6,
                )


def _scheme_of(server: ThreadingHTTPServer, tls: ssl.SSLContext | None) -> str:
    if tls is None:
        return "http"
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    return "https"


@contextmanager
def collecting(collector: Collector | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[Collector]:
    """Give a collector that listens on a free port."""
    found = collector or Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            if found.hangs:
                found.let_go.wait(60)
            self.send_response(found.status)
            if found.trickles_head:
                self.flush_headers()
                self.wfile.write(b"x-slow: ")
                for _ in range(250):
                    if found.let_go.wait(0.02):
                        break
                    self.wfile.write(b"a")
                self.wfile.write(b"\r\n")
            for name, value in found.headers.items():
                self.send_header(name, value)
            length = 60_000 if found.trickles else len(found.body)
            self.send_header("content-length", str(length))
            self.end_headers()
            while found.trickles and not found.let_go.wait(0.02):
                self.wfile.write(b" ")
            self.wfile.write(found.body)

        def log_message(self, *told: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of clients that went away."""

    server = Server(("127.0.0.1", 0), Handler)
    scheme = _scheme_of(server, tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    found.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    try:
        yield found
    finally:
        found.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()
