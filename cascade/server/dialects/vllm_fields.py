"""What vLLM's ``/rerank`` and ``/score`` have in common: forms of text, options, and options that are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypedDict

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StrictStr

from cascade.decision import Decision, RankedCandidate
from cascade.errors import RequestError, RequestFault
from cascade.policy.merge import logit
from cascade.server.dialects.base import Options
from cascade.server.dialects.first_stage import FirstStage
from cascade.server.fields import ignored_fields
from cascade.text import Text
from cascade.types import LOWEST_PRIORITY

__all__ = [
    "Flat",
    "FlatList",
    "VllmOptions",
    "clips",
    "instruction",
    "outward_score",
    "priority",
    "refuse_unmet",
    "untaken",
    "usage",
    "wants_logits",
]


def _flatten(value: object) -> object:
    """Turn ``{"text": …}`` and ``{"content": [{"type": "text", …}]}`` into a string; leave the rest to be refused."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("text"), str):
        return value["text"]
    parts = value.get("content")
    if isinstance(parts, list) and parts and all(_is_text(part) for part in parts):
        return "\n".join(part["text"] for part in parts)
    return None


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _listed(value: object) -> object:
    return [value] if isinstance(value, (str, dict)) else value


Flat = Annotated[StrictStr, BeforeValidator(_flatten)]
FlatList = Annotated[list[Flat], FailFast(), BeforeValidator(_listed)]
_Count = Annotated[int, Field(ge=0)] | None


class Clips(TypedDict):
    """A caller's limits, as fields of a request."""

    max_query_tokens: int | None
    max_document_tokens: int | None
    max_pair_tokens: int | None


class VllmOptions(BaseModel):
    """Options of both. Unknown fields are ignored and numbers and flags read laxly, as vLLM does."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    model: StrictStr | None = Field(default=None, description="Any name is accepted, and repeated in the answer")
    use_activation: bool | None = Field(default=None, description="False: answer the logit of the score")
    activation: bool | None = Field(default=None, description="The same, as older clients spell it")
    softmax: bool | None = Field(default=None, description="The same, as older clients spell it")
    instruction: StrictStr | None = Field(
        default=None, description="What relevance means here; refused where the release's stages take none"
    )
    instruct: StrictStr | None = Field(default=None, description="The same, as SGLang's clients spell it")
    max_tokens_per_doc: _Count = Field(
        default=0, description="Score no more of a document than about this; 0 and null: no limit of the caller's"
    )
    max_tokens_per_query: _Count = Field(default=0, description="The same of the query")
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = Field(
        default=None, description="Score no more of query and document together; -1 and null: the model's own limit"
    )
    priority: int | None = Field(
        default=None,
        description="Class that it waits in under load: 0 the first and 9 the last; beyond counts as those",
    )
    first_stage: FirstStage = None


_UNMET: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "truncation": (lambda value: value is None or value is True, "over-long texts are clipped; false is not to be had"),
    "truncation_side": (lambda value: value in (None, "right"), "texts are clipped at their end"),
    "truncate_prompt_tokens": (lambda value: value is None or value != 0, "must be -1 or at least 1"),
    "chat_template_kwargs": (lambda value: value in (None, {}), "the release decides how a pair is written"),
    "rank_fields": (lambda value: value in (None, [], ["text"]), "documents are texts without fields"),
}


def refuse_unmet(body: Any) -> None:
    """Refuse an option that would change the scores and is not to be had, rather than answer other scores."""
    for name, (met, rule) in _UNMET.items():
        if isinstance(body, dict) and name in body and not met(body[name]):
            raise RequestError(RequestFault.SCHEMA, name, rule)


def untaken(body: Any, model: type[VllmOptions], *names: str) -> tuple[str, ...]:
    """Return the names in a body that do nothing; ``names`` are taken though the model does not have them."""
    return ignored_fields(body, {*model.model_fields, *_UNMET, *names})


def instruction(given: VllmOptions) -> tuple[Text | None, str]:
    """Return the caller's instruction, and the field that it stands in."""
    for name in ("instruction", "instruct"):
        value: str | None = getattr(given, name)
        if value is not None and value.strip():
            return Text(value), name
    return None, "instruction"


def clips(given: VllmOptions) -> Clips:
    """Return the caller's limits."""
    pair = given.truncate_prompt_tokens
    return {
        "max_query_tokens": given.max_tokens_per_query or None,
        "max_document_tokens": given.max_tokens_per_doc or None,
        "max_pair_tokens": pair if pair is not None and pair > 0 else None,
    }


def priority(given: VllmOptions) -> int:
    """Return the class that the caller asks for."""
    return min(max(given.priority or 0, 0), LOWEST_PRIORITY)


def wants_logits(given: VllmOptions) -> bool:
    """Tell whether any spelling of the switch is off."""
    return False in (given.use_activation, given.activation, given.softmax)


def outward_score(item: RankedCandidate, options: Options) -> float:
    """Return a score as the caller wants it."""
    return logit(item.score) if options.raw_scores else item.score


def usage(decision: Decision) -> dict[str, int]:
    """Return what all rounds read."""
    tokens = sum(item.cost.tokens for item in decision.rounds if item.cost is not None)
    return {"prompt_tokens": tokens, "total_tokens": tokens}
