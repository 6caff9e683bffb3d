"""Decision records with what was done for each: the action, its trouble and its share of the sample."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Self, cast

from pydantic import Field, ValidationError, model_validator

from cascade.replay.record_lines import DecisionLine, Lines, Place
from cascade.types import DegradedReason, StageName

__all__ = ["LoggedLine", "LoggedLines"]

_OK: Final = "ok"
_DECIDED_SAFELY: Final = DegradedReason.CALIBRATION_MISMATCH


class LoggedLine(DecisionLine):
    """One decided request as it was served. ``signals`` are those that the release's rules read."""

    decision_id: Annotated[str, Field(min_length=1, max_length=200)]
    top_n: Place
    depth_reason: str
    escalated: tuple[Place, ...]
    degraded: tuple[str, ...]
    rank_changes_at_5: Place
    propensity: Annotated[float, Field(gt=0, le=1)]
    signals: dict[str, float | None]
    beside: str | None

    @model_validator(mode="after")
    def _within(self) -> Self:
        if any(place >= len(self.ids) for place in self.escalated):
            raise ValueError("a place that no candidate has")
        return self

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


class LoggedLines(Lines):
    """The lines of some files of records, as :class:`LoggedLine`. One that is not whole is counted as strange."""

    def __iter__(self) -> Iterator[LoggedLine]:
        return cast("Iterator[LoggedLine]", super().__iter__())

    def _read(self, line: bytes, path: Path) -> LoggedLine | None:
        if super()._read(line, path) is None:
            return None
        try:
            return LoggedLine.model_validate_json(line)
        except ValidationError:
            self.unread.strange += 1
            return None
