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

from cascade.decision import Action, DegradedReason
from cascade.errors import ConfigError
from cascade.replay.record_files import lines_of
from cascade.stages.fingerprint import completed
from cascade.telemetry.records import FORMAT, MOST_CHANNELS
from cascade.types import Arm, QueryClass, StageName

__all__ = ["DecisionLine", "HeadLine", "Lines", "RoundLine", "ScorerLine", "Unread", "WouldLine"]

_DECIDED_SAFELY: Final = DegradedReason.CALIBRATION_MISMATCH
_OK: Final = "ok"

Hash = Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")]
Name = Annotated[str, Field(pattern="^[A-Za-z0-9_.:-]{1,80}$")]
Scores = tuple[float | None, ...]
Place = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


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
        told = {name: completed(each.fingerprint) for name, each in self.scorers.items()}
        return json.dumps(told, sort_keys=True)


class RoundLine(_Line):
    """One round of a stage."""

    stage: StageName
    outcome: str
    sent: Place
    elapsed_ms: float
    cached: Place = 0


class WouldLine(_Line):
    """What a release of mode observe would have decided."""

    depth: Place
    action: Action
    escalated: tuple[Place, ...]


class DecisionLine(_Line):
    """One decided request. Arrays go by position in the request's candidates.

    ``signals`` are those that the release's rules read, ``tokens`` those of each candidate's pair, estimated.
    ``propensity`` is that of the arm and of being recorded, ``sample`` the latter alone; what was written before
    there were arms has no ``sample``, and the two are one.
    """

    kind: Literal["decision"]
    head: Hash
    time: AwareDatetime
    decision_id: Annotated[str, Field(min_length=1, max_length=200)]
    query_hash: Hash
    tenant: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")] | None
    load_level: str | None = None
    arm: Arm = Arm.STABLE
    of: str | None = None
    top_n: Place
    depth: Place
    depth_reason: str
    escalated: tuple[Place, ...]
    degraded: tuple[str, ...]
    rank_changes_at_5: Place
    sample: Share | None = None
    propensity: Share
    signals: dict[str, float | None]
    q_class: QueryClass
    q_tokens: Place
    q_identifiers: Place
    instruction: Hash | None
    excluded: tuple[Place, ...]
    ids: Annotated[tuple[Hash, ...], Field(min_length=1)]
    tokens: tuple[Annotated[int, Field(ge=1)], ...]
    small: Scores
    large: Scores
    channels: Annotated[dict[Name, Scores], Field(max_length=MOST_CHANNELS)]
    rounds: tuple[RoundLine, ...]
    beside: str | None
    would: WouldLine | None

    @model_validator(mode="after")
    def _as_long_as_each_other(self) -> Self:
        count = len(self.ids)
        columns = (self.tokens, self.small, self.large, *self.channels.values())
        if any(len(column) != count for column in columns) or self.depth > count:
            raise ValueError("columns differ in length")
        would = self.would
        places = self.escalated + (() if would is None else would.escalated)
        if max(places, default=0) >= count or (would is not None and would.depth > count):
            raise ValueError("a place that no candidate has")
        if self.sample is not None and self.propensity > self.sample:
            raise ValueError("more likely than recorded")
        return self

    @property
    def recorded(self) -> float:
        """Return the share of the queries that is recorded: this one stands for so many, whatever arm decided it."""
        return self.propensity if self.sample is None else self.sample

    @property
    def arm_probability(self) -> float:
        """Return how likely its arm was for this request."""
        return self.propensity / self.recorded

    @property
    def is_degraded(self) -> bool:
        """Tell whether trouble decided it. That a calibration does not hold is no trouble: the safe mode decides."""
        return any(reason != _DECIDED_SAFELY for reason in self.degraded)

    @property
    def small_depth(self) -> int:
        """Return how many of the first candidates the small stage scored: all within depth, or none.

        In mode observe that is beside the answer.
        """
        went_well = any(one.stage is StageName.SMALL and one.outcome == _OK for one in self.rounds)
        return self.depth if went_well else 0

    @property
    def is_complete(self) -> bool:
        """Tell whether both stages scored every candidate within depth, but those that a stage left out."""
        return self.depth > 0 and all(
            (self.small[place] is not None and self.large[place] is not None) or place in self.excluded
            for place in range(self.depth)
        )

    def ms_a_pair(self, stage: StageName) -> float | None:
        """Return the milliseconds of a stage's rounds for each pair sent, None where no round went well."""
        went_well = [one for one in self.rounds if one.stage is stage and one.outcome == _OK]
        sent = sum(one.sent - one.cached for one in went_well)
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
    """The decided requests in some files of records, JSON lines or Parquet, in the order given.

    A file is gone through line by line; held are the heads. ``shadows`` counts decisions of shadows: they answered
    no request, and are passed over.
    """

    paths: Sequence[Path]
    heads: dict[str, HeadLine] = field(default_factory=dict)
    unread: Unread = field(default_factory=Unread)
    shadows: int = 0

    def __iter__(self) -> Iterator[DecisionLine]:
        for path in self.paths:
            for line in lines_of(path):
                read = self.read(line, path)
                if read is not None and read.arm is Arm.SHADOW:
                    self.shadows += 1
                elif read is not None:
                    yield read

    def read(self, line: bytes, path: Path) -> DecisionLine | None:
        """Return the decision of a line; None for a head, which is kept, and for one that says nothing, counted.

        Raises ConfigError for a head of another version.
        """
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
