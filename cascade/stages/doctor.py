"""Examine a stage as an operator would: is it there, what is it, does it score right, how fast, what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cascade.errors import StageError
from cascade.guard.deadline import Clock, Deadline
from cascade.policy.release import ChatStage, HttpStage, StageBase, TeiStage
from cascade.stages.base import Observed, Stage
from cascade.stages.graph.exact import WhyExported
from cascade.stages.probe import Probe, Verdict, probe
from cascade.text import Text

__all__ = ["Examination", "advise", "differences", "examine", "is_version"]

_PROBE_MS: Final = 10_000.0
_SIZES: Final = (1, 8, 32)
_REPEATS: Final = 3
_QUERY: Final = "how is the lamp of a lighthouse kept"
_PASSAGE: Final = (
    "The keeper trims the wick at dusk, wipes the lens, winds the clockwork that turns it, and writes the hour and the "
    "weather in the log. Twice in the night he fills the reservoir. Passage {number}. "
) * 2
_BY_VERDICT: Final = {
    Verdict.WRONG_ORDER: (
        "an irrelevant document outscores the relevant one: the prompt template is missing or applied twice (for "
        "Qwen3-Reranker either start the server with its template and overrides and use passthrough@1, or without a "
        "template and use qwen3-reranker@1), or the model is no reranker"
    ),
    Verdict.CONSTANT: (
        "all scores are the same: the classification head was not loaded (Qwen3-Reranker needs hf_overrides with "
        "classifier_from_token), or the file was converted without it"
    ),
    Verdict.OUTSIDE_SPACE: "scores lie outside the declared score_space: declare logit",
    Verdict.NO_PERMUTATION: (
        "the model's order of four passages names one twice, leaves one out or stands in other text: set form to regex or "
        "json-schema where the server can hold it to one, or ask a model that follows the prompt"
    ),
    Verdict.TWICE_ACTIVATED: (
        "all scores lie between 0.5 and 0.731: a probability was put through a sigmoid again; have the server answer raw "
        "scores, or declare the space that it answers in"
    ),
}
_ORDERED_WRONG: Final = (
    "the model puts an irrelevant passage before the one that answers the query: it is too small for this, or its chat "
    "template is not its own"
)
_TOO_SLOW_A_LIST: Final = (
    "a list is one call, and is not cut short: raise the budget (large_ms and total_ms), lower top_m, or have the model "
    "write less (thinking: false, a lower answer_tokens)"
)
_BY_CODE: Final = {
    "no_chat": "the server has no chat template, or runs a model that writes nothing: start it with a model that chats",
    "no_order": "the model's answer names no passage: it does not follow the prompt, or thinks for longer than answer_tokens",
    "cut_order": "the model's answer was cut by its length: raise answer_tokens, or set thinking to false",
    "no_route": "the server has no scoring route: wrong address or adapter, or it was not started as a reranker",
    "not_a_reranker": "the server runs a model that is no reranker, or was started without the reranker's overrides",
    "unknown_model": "the server does not know the model's name: set model to one that it lists",
    "unauthorized": "the server wants a key: name it under auth",
    "refused": "nothing listens at the address",
    "dns": "the host name is not known",
    "tls": "the server's certificate is not trusted: name its authority under ca_bundle",
}
_BY_CODE_OF_CHAT: Final = {
    "status_400": (
        "the server refuses how it is asked: where it knows no such field set form to text and leave thinking unset; or its "
        "chat template takes no system message"
    ),
    "too_long": "prompt and answer have no room together: lower answer_tokens, or give the server a longer context",
    "answer_too_large": "the answer is longer than its list asks for: set answer_tokens to what the model may write",
}


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found at one stage. ``latency_ms`` maps documents a request to the median of three."""

    observed: Observed | None
    unusable: str | None
    probe: Probe
    latency_ms: Mapping[int, float] = field(default_factory=dict)
    advice: Sequence[str] = ()


async def examine(stage: Stage, spec: StageBase, budget_ms: float, clock: Clock) -> Examination:
    """Start a stage, probe it and time it. Raises ConfigError where it cannot be loaded."""
    await stage.start()
    found = await probe(stage, Deadline.after_ms(_PROBE_MS, clock))
    latency_ms = {} if found.verdict is Verdict.FAILED else await _latency(stage, clock)
    advice = advise(spec, stage.observed, stage.unusable, found, latency_ms, budget_ms)
    return Examination(stage.observed, stage.unusable, found, latency_ms, advice)


async def _latency(stage: Stage, clock: Clock) -> dict[int, float]:
    """Return the median time of requests of several sizes, every document new."""
    medians: dict[int, float] = {}
    number = 0
    for size in _SIZES:
        taken: list[float] = []
        for _ in range(_REPEATS):
            texts = [Text(_PASSAGE.format(number=number + offset)) for offset in range(size)]
            number += size
            began = clock()
            try:
                await stage.score(
                    Text(_QUERY), texts, deadline=Deadline.after_ms(_PROBE_MS, clock), call_id=f"doctor-{number}"
                )
            except StageError:
                return medians
            taken.append((clock() - began) * 1000)
        medians[size] = sorted(taken)[_REPEATS // 2]
    return medians


def advise(
    spec: StageBase,
    observed: Observed | None,
    unusable: str | None,
    found: Probe,
    latency_ms: Mapping[int, float],
    budget_ms: float,
) -> list[str]:
    """Say what to change, most urgent first; nothing where all is well."""
    advice = []
    code = unusable or found.code
    if code:
        told = _BY_CODE | _BY_CODE_OF_CHAT if isinstance(spec, ChatStage) else _BY_CODE
        advice.append(told.get(code, f"scoring fails: {code}"))
        if code == "reset" and _shows_none(spec):
            advice.append(
                "a server that wants a certificate of its clients ends connections so: name one under client_certificate"
            )
    elif isinstance(spec, ChatStage) and found.verdict is Verdict.WRONG_ORDER:
        advice.append(_ORDERED_WRONG)
    elif found.verdict in _BY_VERDICT:
        advice.append(_BY_VERDICT[found.verdict])
    if observed is not None:
        advice += differences(spec, observed)
        if (observed.attention or "").endswith(WhyExported.OTHER_BITS):
            advice.append(
                "the exact form of attention scores other bits on this machine, so the exported one runs: declare "
                "attention: exported, which spares the comparison at load"
            )
    slow = [size for size, taken in latency_ms.items() if taken > budget_ms]
    if slow:
        advice.append(
            f"{min(slow)} documents of about 100 tokens take longer than the stage's budget of {budget_ms:.0f} ms: "
            + (_TOO_SLOW_A_LIST if isinstance(spec, ChatStage) else "lower the depth or raise the budget")
        )
    return advice


def _shows_none(spec: StageBase) -> bool:
    return isinstance(spec, HttpStage) and spec.url.startswith("https:") and spec.client_certificate is None


def is_version(declared: str, said: str) -> bool:
    """Tell whether a version that a server says is the one declared: 1.9 is 1.9.3 too, and not 1.90."""
    return said == declared or said.startswith((f"{declared}.", f"{declared}-", f"{declared}+"))


def differences(spec: StageBase, observed: Observed) -> list[str]:
    """Hold what the release declares against what the server says; one line for each difference."""
    advice = []
    if isinstance(spec, TeiStage) and observed.model is not None and observed.model != spec.model:
        advice.append(f"model is declared as {spec.model}, the server says {observed.model}")
    if isinstance(spec, HttpStage) and observed.max_length is not None and spec.max_length > observed.max_length:
        advice.append(f"max_length is {spec.max_length}, the server takes {observed.max_length}: declare that")
    version = spec.engine.partition("/")[2]
    if isinstance(spec, HttpStage) and observed.version is not None and not is_version(version, observed.version):
        advice.append(f"engine is declared as {spec.engine}, the server says version {observed.version}")
    if observed.dtype is not None and observed.dtype != spec.dtype:
        advice.append(f"dtype is declared as {spec.dtype}, the server says {observed.dtype}")
    if isinstance(spec, HttpStage) and observed.revision is None and spec.revision is None:
        advice.append("no revision is declared and none is told: scores may change under the same name")
    return advice
