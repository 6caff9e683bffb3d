"""The file of a tuning: what was measured on a machine for a stage that runs on its cores, and what was chosen."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import orjson
from pydantic import AwareDatetime, Discriminator, Field, ValidationError

from cascade.calibration.broken_rules import broken_rules
from cascade.errors import ConfigError
from cascade.policy.frozen import Frozen
from cascade.policy.stage_specs import OnePair, OnnxStage, TokenBudget

__all__ = [
    "FORMAT",
    "Asked",
    "Chosen",
    "Cold",
    "Conditions",
    "Lengths",
    "Quantiles",
    "Spread",
    "Step",
    "Trial",
    "Tuning",
    "Warm",
    "WeightsUsed",
    "filled_from",
    "parse_tuning",
    "tuning_bytes",
]

FORMAT: Final = "cascade-tuning/1"
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Some = Annotated[float, Field(ge=0)]
_Named = Annotated[str, Field(min_length=1, max_length=300)]


class Spread(Frozen):
    """The median of ``n`` measurements, with the least and the most of them."""

    median: _Some
    least: _Some
    most: _Some
    n: int = Field(ge=1)


class Conditions(Frozen):
    """The machine and the versions that figures were measured with. ``load_average`` is that of the minute before."""

    date: AwareDatetime
    cascade: _Named
    python: _Named
    onnxruntime: _Named
    tokenizers: _Named
    os: _Named
    cpu: _Named
    instructions: Annotated[tuple[_Named, ...], Field(strict=False)]
    cores: int = Field(ge=1)
    load_average: _Some | None = None


class WeightsUsed(Frozen):
    """The weights that the chosen numbers are of: how they were called, and the digest of each file."""

    name: _Named
    sha256: dict[str, _Sha256]


class Quantiles(Frozen):
    """Token counts at these shares of all."""

    q0: int = Field(ge=0)
    q25: int = Field(ge=0)
    q50: int = Field(ge=0)
    q75: int = Field(ge=0)
    q90: int = Field(ge=0)
    q99: int = Field(ge=0)
    q100: int = Field(ge=0)


class Lengths(Frozen):
    """The lengths that were measured with, in tokens; a pair has its query and special tokens, before it is cut."""

    source: _Named
    samples: int = Field(ge=1)
    query_tokens: Quantiles
    pair_tokens: Quantiles


class Asked(Frozen):
    """What was asked for."""

    candidates: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False, min_length=1)]
    deadline_ms: float = Field(gt=0)
    seconds: float = Field(gt=0)
    repeats: int = Field(ge=1)
    seed: int = Field(ge=0)


class Trial(Frozen):
    """One value that was tried. ``refused`` tells why it was not measured."""

    value: _Named
    measured: Spread | None = None
    refused: _Named | None = None


class Step(Frozen):
    """One variable, with all others held. The first trial is the value that ties go to."""

    variable: _Named
    metric: Literal["pairs_per_s", "goodput_per_s"]
    trials: Annotated[tuple[Trial, ...], Field(strict=False, min_length=1)]
    chosen: _Named
    why: _Named


class Cold(Frozen):
    """A start: how long loading took, and the first call after it, in milliseconds. Files may be in the system's cache."""

    load_ms: Spread
    first_call_ms: Spread


class Warm(Frozen):
    """A request alone with the chosen numbers, in milliseconds."""

    candidates: int = Field(ge=1)
    request_ms: Spread


class Chosen(Frozen):
    """What was chosen. ``threads`` and ``max_in_flight`` are settings, ``batching`` is the release's."""

    threads: int = Field(ge=1)
    max_in_flight: int = Field(ge=1)
    batching: Annotated[OnePair | TokenBudget, Discriminator("mode")]
    pairs_per_s: Spread


class Tuning(Frozen):
    """A tuning, whole. docs/tune.md says what each part means."""

    format: Literal["cascade-tuning/1"]
    stage: Literal["small", "large"]
    model: _Named
    max_length: int = Field(ge=8)
    weights: WeightsUsed
    conditions: Conditions
    lengths: Lengths
    asked: Asked
    offered_per_s: _Some = Field(description="Requests a second that came in the open loops of goodput")
    steps: Annotated[tuple[Step, ...], Field(strict=False)]
    cold: Cold
    warm: Annotated[tuple[Warm, ...], Field(strict=False)]
    chosen: Chosen
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()


def parse_tuning(data: bytes, where: object) -> Tuning:
    """Read a tuning. Raises ConfigError naming the key at fault, never its value."""
    try:
        return Tuning.model_validate_json(data)
    except ValidationError as error:
        told = broken_rules(error)
    raise ConfigError(f"tuning {where}: {told}")


def tuning_bytes(tuning: Tuning) -> bytes:
    """Return the JSON of a tuning: sorted keys, indented, one newline at the end."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(tuning.model_dump(mode="json"), option=options)


def filled_from(tuning: Tuning, spec: OnnxStage) -> OnnxStage:
    """Return a stage with the tuned numbers of its batching where the release states none of its own.

    The mode is the release's alone, as it is part of the fingerprint: of another mode no number is taken.
    """
    said, chosen = spec.batching, tuning.chosen.batching
    if not isinstance(said, TokenBudget) or not isinstance(chosen, TokenBudget):
        return spec
    numbers = {name: value for name, value in chosen if name != "mode" and name not in said.model_fields_set}
    return spec.model_copy(update={"batching": said.model_copy(update=numbers)}) if numbers else spec
