"""What a vLLM server says of itself, whichever of its routes is spoken: its models, and what it refuses a prompt for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from cascade.stages.base import Observed
from cascade.stages.upstream import Lost, Reply
from cascade.stages.wire import Fault, FaultKind, Getter, model_cards, number_after, object_of, observed_in, text_of

__all__ = ["look_at_models", "server_fault"]

_LIMIT: Final = re.compile(r"maximum (?:context|model|input) length (?:is|of) (\d+)")
_GIVEN: Final = re.compile(
    r"(?:requested|contains|has|least|resulted in|were given|passed) (?:at least |a total of )?(\d+)\b(?! output| (?:input )?characters)"
)
"""What was counted of the prompt, or of it and the answer: not the room that was asked for, nor characters."""
_AT_LEAST: Final = re.compile(r"at least \d+")
_NO_MODEL: Final = re.compile(r"model .{0,300} does not exist", re.DOTALL)


def server_fault(status: int, message: str) -> Fault | None:
    """Classify an error that means the same on every route, None where it is another."""
    match status:
        case 404 if _NO_MODEL.search(message):
            return Fault(FaultKind.UNUSABLE, "unknown_model")
        case 400 | 500 if (limit := number_after(_LIMIT, message)) is not None:
            at_least = _AT_LEAST.search(message) is not None
            return Fault(FaultKind.TOO_LONG, "too_long", limit, number_after(_GIVEN, message), at_least)
        case 413:
            return Fault(FaultKind.TOO_MANY_BYTES, "payload_limit")
        case _:
            return None


async def look_at_models(get: Getter, model: str, fault: Callable[[Reply], Fault]) -> Observed | Fault:
    """Read ``/v1/models`` and ``/version``; ``fault`` classifies an error. Raises Lost."""
    reply = await get("/v1/models")
    if reply.status == 404:
        return Observed()
    if reply.status != 200:
        return fault(reply)
    cards = model_cards(object_of(reply))
    card = next((card for card in cards if card.get("id") == model), None)
    if cards and card is None:
        return Fault(FaultKind.UNUSABLE, "unknown_model")
    return observed_in(card or {}, version=await _version(get))


async def _version(get: Getter) -> str | None:
    """Return the server's version, None where it does not answer: no limit hangs on it."""
    try:
        return text_of(object_of(await get("/version")).get("version"))
    except Lost:
        return None
