"""Read what servers tell of their own load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from cascade.stages.base import Congestion
from cascade.stages.upstream import Reply
from cascade.stages.wire import object_of

__all__ = ["is_failing", "is_pressed", "joined", "read_load"]

_WAITING: Final = frozenset(
    {"vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs", "te_queue_size"}
)
_CALL_SHARE: Final = 4
"""A call of which all but a quarter was spent in the server's queue found one there."""
_RUNNING: Final = frozenset({"vllm:num_requests_running", "llamacpp:requests_processing", "sglang:num_running_reqs"})


def is_failing(reply: Reply) -> bool:
    """Tell whether a route that should tell of load fails for now, and is not simply absent."""
    return reply.status in {408, 429} or (reply.status >= 500 and reply.status != 501)


def read_load(reply: Reply, at: float) -> Congestion | None:
    """Read an answer that tells of load, in either of the two forms that servers use; None where it does not."""
    if reply.status != 200:
        return None
    return _from_models(reply, at) if object_of(reply) else _from_metrics(reply, at)


def joined(polled: Congestion | None, answered: Congestion | None, now: float) -> Congestion | None:
    """Join what the load route told last with the queue that the last answer told of.

    Each grows old by itself: what is stale beside something fresh is left out, since it is unknown, and so is what has
    fallen silent beside something that has not.
    """
    if polled is None or answered is None:
        return polled or answered
    ages = [(told.is_silent(now), told.is_stale(now)) for told in (polled, answered)]
    if ages[0] == ages[1]:
        return replace(polled, at=min(polled.at, answered.at), queue_ms=answered.queue_ms)
    return answered if ages[0] > ages[1] else polled


def is_pressed(told: Congestion | None, now: float, *, call_ms: float, queue_ms: float | None, most_texts: int) -> bool:
    """Tell whether a server says that it has a queue.

    That is more waiting than half of what may be under way, or three quarters of a call spent waiting. A signal that
    has grown old counts as one, until it is so old that the server has fallen silent: a server that tells nothing has none.
    """
    if queue_ms is not None and queue_ms * _CALL_SHARE > call_ms * (_CALL_SHARE - 1):
        return True
    if told is None or told.is_silent(now):
        return False
    return told.is_stale(now) or (told.waiting is not None and told.waiting * 2 > most_texts)


def _from_metrics(reply: Reply, at: float) -> Congestion | None:
    """Read the Prometheus metrics of TEI, vLLM, llama.cpp or SGLang; None where they tell nothing of load."""
    waiting: float | None = None
    running: float | None = None
    try:
        for family in text_string_to_metric_families(reply.body.decode("utf-8", "replace")):
            for sample in family.samples:
                if not sample.value >= 0:
                    continue
                if sample.name in _WAITING:
                    waiting = (waiting or 0.0) + sample.value
                elif sample.name in _RUNNING:
                    running = (running or 0.0) + sample.value
    except ValueError:  # not the text format
        return None
    return None if waiting is None and running is None else Congestion(at, waiting=waiting, running=running)


def _from_models(reply: Reply, at: float) -> Congestion | None:
    """Read Infinity's ``/models``, which counts its queue there; None where it does not."""
    listed = object_of(reply).get("data")
    stats = [card.get("stats") for card in listed if isinstance(card, Mapping)] if isinstance(listed, list) else []
    counts = [_number(entry.get("queue_absolute")) for entry in stats if isinstance(entry, Mapping)]
    told = [count for count in counts if count is not None]
    return Congestion(at, waiting=sum(told)) if told else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and value >= 0 else None
