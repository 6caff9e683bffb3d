"""One call of a server, with its span."""

from __future__ import annotations

from cascade.stages.upstream import Lost, Reply, Upstream
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.telemetry.spans import Opened, child

__all__ = ["post_traced"]


async def post_traced(
    upstream: Upstream,
    route: str,
    body: bytes,
    *,
    request_id: str,
    texts: int,
    tokens: int,
    resent: int,
    room_ms: float,
) -> tuple[Reply, Opened]:
    """Post as `Upstream.post` does, and return the span too, which whoever reads the answer tells what the server told.

    ``tokens`` is our estimate, ``resent`` which repetition it is, ``room_ms`` how long it waited for room.
    """
    with child(SpanName.CALL) as span:
        span.set(Attribute.METHOD, "POST")
        span.set(Attribute.ADDRESS, upstream.host)
        span.set(Attribute.PORT, upstream.port)
        span.set(Attribute.UPSTREAM_ROUTE, route)
        span.set(Attribute.SENT, texts)
        span.set(Attribute.TOKENS, tokens)
        span.set(Attribute.RESENT, resent or None)
        span.set(Attribute.ROOM_MS, room_ms or None)
        try:
            reply = await upstream.post(route, body, request_id=request_id, texts=texts)
        except Lost as lost:
            span.fail(lost.code)
            raise
        span.set(Attribute.STATUS, reply.status)
        if reply.status >= 400:
            span.fail(str(reply.status))
        return reply, span
