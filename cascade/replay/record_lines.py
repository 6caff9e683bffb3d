"""Read decision records back from their lines. What cannot be read is counted, never quoted."""

from __future__ import annotations

import json
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
from cascade.telemetry.records import FORMAT, MOST_CHANNELS
from cascade.types import QueryClass, StageName

__all__ = ["DecisionLine", "HeadLine", "Lines", "RoundLine", "ScorerLine", "Unread"]

Hash = Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")]
Name = Annotated[str, Field(pattern="^[A-Za-z0-9_.:-]{1,80}$")]
Scores = tuple[float | None, ...]
Place = Annotated[int, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)


class ScorerLine(_Line):
    """What a stage was: as declared, and as its server told it."""

    stage: StageName
    fingerprint: dict[str, str | int | None]
    observed: dict[str, str | int | None] | None = None


class HeadLine(_Line):
    """What the records that name it depend on. ``key`` tells records of one hash key from those of another."""

    kind: Literal["head"]
    id: Hash
    format: str
    release: Name
    release_digest: Name
    policy_digest: Name
    mode: Literal["cascade", "observe"]
    key: Hash
    scorers: dict[StageName, ScorerLine]

    def fingerprints(self) -> str:
        """Return the fingerprints of all scorers in one text that is equal where they are."""
        return json.dumps({name: each.fingerprint for name, each in self.scorers.items()}, sort_keys=True)


class RoundLine(_Line):
    """One round of a stage."""

    stage: StageName
    outcome: str
    sent: Place
    elapsed_ms: float


class DecisionLine(_Line):
    """One decided request. Arrays go by position in the request's candidates."""

    kind: Literal["decision"]
    head: Hash
    time: AwareDatetime
    query_hash: Hash
    tenant: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")] | None
    depth: Place
    q_class: QueryClass
    q_tokens: Place
    q_identifiers: Place
    instruction: Hash | None
    excluded: tuple[Place, ...]
    ids: Annotated[tuple[Hash, ...], Field(min_length=1)]
    tokens: tuple[Place, ...]
    small: Scores
    large: Scores
    channels: Annotated[dict[Name, Scores], Field(max_length=MOST_CHANNELS)]
    rounds: tuple[RoundLine, ...]

    @model_validator(mode="after")
    def _as_long_as_each_other(self) -> Self:
        columns = (self.tokens, self.small, self.large, *self.channels.values())
        if any(len(column) != len(self.ids) for column in columns) or self.depth > len(self.ids):
            raise ValueError("columns differ in length")
        return self

    @property
    def is_complete(self) -> bool:
        """Tell whether both stages scored every candidate within depth, but those that a stage left out."""
        return self.depth > 0 and all(
            (self.small[place] is not None and self.large[place] is not None) or place in self.excluded
            for place in range(self.depth)
        )

    def ms_a_pair(self, stage: StageName) -> float | None:
        """Return the milliseconds of a stage's rounds for each pair sent, None where no round went well."""
        went_well = [one for one in self.rounds if one.stage is stage and one.outcome == "ok"]
        sent = sum(one.sent for one in went_well)
        return sum(one.elapsed_ms for one in went_well) / sent if sent else None


_ADAPTER: Final = TypeAdapter[HeadLine | DecisionLine](Annotated[HeadLine | DecisionLine, Discriminator("kind")])


@dataclass(slots=True)
class Unread:
    """Lines that say nothing: torn ones are no JSON, ``strange`` are no records, the rest lack their head."""

    torn: int = 0
    strange: int = 0
    headless: int = 0


@dataclass(slots=True)
class Lines:
    """The lines of some files of records, in the order given, as they are gone through."""

    paths: Sequence[Path]
    heads: dict[str, HeadLine] = field(default_factory=dict)
    unread: Unread = field(default_factory=Unread)

    def __iter__(self) -> Iterator[DecisionLine]:
        for path in self.paths:
            yield from self._of(path)

    def _of(self, path: Path) -> Iterator[DecisionLine]:
        try:
            with path.open("rb") as file:
                for line in file:
                    read = self._read(line, path)
                    if read is not None:
                        yield read
        except OSError as error:
            raise ConfigError(f"records {path}: cannot be read: {type(error).__name__}") from None

    def _read(self, line: bytes, path: Path) -> DecisionLine | None:
        try:
            read = _ADAPTER.validate_json(line)
        except ValidationError as error:
            kinds = {fault["type"] for fault in error.errors(include_url=False, include_input=False)}
            if "json_invalid" in kinds:
                self.unread.torn += 1
            else:
                self.unread.strange += 1
            return None
        if isinstance(read, HeadLine):
            if read.format != FORMAT:
                raise ConfigError(f"records {path}: written by another version; {FORMAT} is read")
            self.heads[read.id] = read
            return None
        if read.head not in self.heads:
            self.unread.headless += 1
            return None
        return read
