"""Read what came of decisions: one reward a decision, from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.errors import ConfigError

__all__ = ["Outcomes", "read_outcomes"]


class _OutcomeLine(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)

    decision_id: Annotated[str, Field(min_length=1)]
    reward: float


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Rewards by decision id; ``repeated`` counts lines that said again what an earlier one had said."""

    rewards: Mapping[str, float]
    repeated: int = 0


def read_outcomes(paths: Sequence[Path]) -> Outcomes:
    """Return the rewards in some files of JSON lines with ``decision_id`` and ``reward``; other keys say nothing.

    Raises ConfigError, naming file and line, for a file that cannot be read, a line that is no outcome, and a
    decision with two rewards.
    """
    rewards: dict[str, float] = {}
    repeated = 0
    for where, line in _lines(paths):
        found = _outcome(where, line)
        before = rewards.setdefault(found.decision_id, found.reward)
        if before != found.reward:
            raise ConfigError(f"{where}: reward: its decision has another one before")
        repeated += 1
    return Outcomes(rewards, repeated - len(rewards))


def _lines(paths: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield f"outcomes {path}: line {number}", line
        except OSError as error:
            raise ConfigError(f"outcomes {path}: cannot be read: {type(error).__name__}") from None


def _outcome(where: str, line: bytes) -> _OutcomeLine:
    try:
        return _OutcomeLine.model_validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        raise ConfigError(f"{where}: it is no JSON")
    told = ".".join(map(str, fault["loc"]))
    raise ConfigError(f"{where}: {told}: {fault['msg']}" if told else f"{where}: {fault['msg']}")
