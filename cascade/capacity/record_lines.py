"""Read from decision records when requests came, how large they were, and what was or would have been sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from cascade.errors import ConfigError
from cascade.replay.record_lines import HeadLine, Unread
from cascade.telemetry.records import FORMAT
from cascade.types import Action, DegradedReason, StageName

__all__ = ["RequestLine", "RequestLines"]

_Place = Annotated[int, Field(ge=0)]
_Places = Annotated[tuple[_Place, ...], Field(strict=False)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)


class _Asked(_Line):
    stage: StageName


class _Would(_Line):
    depth: _Place
    action: Action
    escalated: _Places


class RequestLine(_Line):
    """What of one decided request counts for capacity. ``tokens`` are those of each candidate's pair, estimated."""

    kind: Literal["decision"]
    head: str
    time: AwareDatetime
    decision_id: str
    query_hash: str
    propensity: Annotated[float, Field(gt=0, le=1)]
    load_level: str | None = None
    depth: _Place
    degraded: tuple[str, ...]
    escalated: _Places
    q_tokens: _Place
    tokens: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    rounds: tuple[_Asked, ...]
    would: _Would | None

    @model_validator(mode="after")
    def _within(self) -> Self:
        would = self.would
        places = self.escalated + (() if would is None else would.escalated)
        depth = max(self.depth, 0 if would is None else would.depth)
        if max(places, default=0) >= len(self.tokens) or depth > len(self.tokens):
            raise ValueError("a candidate that is not there")
        return self

    @property
    def is_degraded(self) -> bool:
        """Tell whether something went otherwise than its level has it."""
        return any(reason != DegradedReason.LOAD_LEVEL for reason in self.degraded)

    @property
    def small_pairs(self) -> int:
        """Return the pairs that the small stage was asked for."""
        return self.depth if any(one.stage is StageName.SMALL for one in self.rounds) else 0


_ADAPTER: Final = TypeAdapter[HeadLine | RequestLine](Annotated[HeadLine | RequestLine, Discriminator("kind")])


@dataclass(slots=True)
class RequestLines:
    """The requests of some files of records with the head that each names; what cannot be read is counted.

    ``again`` counts requests whose decision id was read before.
    """

    paths: Sequence[Path]
    unread: Unread = field(default_factory=Unread)
    again: int = 0
    heads: dict[str, HeadLine] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[tuple[HeadLine, RequestLine]]:
        for path in self.paths:
            try:
                with path.open("rb") as file:
                    for line in file:
                        read = self._read(line, path)
                        if read is not None:
                            yield self.heads[read.head], read
            except OSError as error:
                raise ConfigError(f"records {path}: cannot be read: {type(error).__name__}") from None

    def _read(self, line: bytes, path: Path) -> RequestLine | None:
        try:
            read = _ADAPTER.validate_json(line)
        except ValidationError as error:
            torn = any(
                fault["type"] == "json_invalid" for fault in error.errors(include_url=False, include_input=False)
            )
            self.unread.torn += torn
            self.unread.strange += not torn
            return None
        if isinstance(read, HeadLine):
            if read.format != FORMAT:
                raise ConfigError(f"records {path}: written by another version; {FORMAT} is read")
            self.heads[read.id] = read
            return None
        if read.head not in self.heads:
            self.unread.headless += 1
            return None
        if read.decision_id in self.seen:
            self.again += 1
            return None
        self.seen.add(read.decision_id)
        return read
