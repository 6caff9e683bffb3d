"""What one replica does in a second, as the operator measured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from cascade.capacity.checked import Written, checked
from cascade.capacity.pair_work import PairWork
from cascade.errors import ConfigError
from cascade.types import StageName

__all__ = ["Throughput", "Throughputs", "merged", "parse_inline", "throughputs_of"]

_Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one replica of a stage does. Exactly one of the rates is there; that of lists is of a stage that orders them.

    With ``pair_tokens`` a rate of pairs holds for pairs of so many tokens, and is turned into a rate of tokens.
    """

    pairs_per_s: float | None
    tokens_per_s: float | None
    pair_tokens: float | None
    padding: float
    buckets: tuple[int, ...]
    lists_per_s: float | None = None

    def seconds(self, work: PairWork) -> float:
        """Return how long one replica at full throughput is busy with a pair, or with a list."""
        if self.lists_per_s is not None:
            return 1.0 / self.lists_per_s
        if self.tokens_per_s is not None:
            return work.computed / self.tokens_per_s
        rate = self.pairs_per_s or 0.0
        return work.sequences / rate if self.pair_tokens is None else work.computed / (rate * self.pair_tokens)


@dataclass(frozen=True, slots=True)
class Throughputs:
    """What is known of the replicas: of stages by name, and how many requests a second a sidecar decides."""

    stages: Mapping[StageName, Throughput]
    sidecar_requests_per_s: float | None


class _StageSpec(Written):
    pairs_per_s: _Positive | None = Field(default=None, description="Pairs a second of one replica")
    tokens_per_s: _Positive | None = Field(default=None, description="Tokens a second of one replica")
    lists_per_s: _Positive | None = Field(default=None, description="Lists a second that one replica orders")
    pair_tokens: _Positive | None = Field(default=None, description="Tokens of the pairs that pairs_per_s is of")
    efficiency: float = Field(default=1.0, gt=0, le=1, description="Share of it that live traffic reaches")
    padding: float | None = Field(default=None, ge=1, description="Computed tokens for each token read")
    buckets: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False, min_length=1)] | None = Field(
        default=None, description="Lengths that sequences are padded to, ascending"
    )
    conditions: str | None = Field(default=None, max_length=300, description="How it was measured")

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if sum(rate is not None for rate in (self.pairs_per_s, self.tokens_per_s, self.lists_per_s)) != 1:
            raise ValueError("give exactly one of pairs_per_s, tokens_per_s and lists_per_s")
        if self.pair_tokens is not None and self.pairs_per_s is None:
            raise ValueError("pair_tokens goes with pairs_per_s")
        padded = self.padding is not None or self.buckets is not None
        if padded and self.tokens_per_s is None and self.pair_tokens is None:
            raise ValueError("padding and buckets count tokens; give tokens_per_s, or pair_tokens with pairs_per_s")
        if self.padding is not None and self.buckets is not None:
            raise ValueError("give one of padding and buckets")
        if self.buckets is not None and any(one >= other for one, other in pairwise(self.buckets)):
            raise ValueError("buckets must ascend")
        return self

    def throughput(self) -> Throughput:
        return Throughput(
            None if self.pairs_per_s is None else self.pairs_per_s * self.efficiency,
            None if self.tokens_per_s is None else self.tokens_per_s * self.efficiency,
            self.pair_tokens,
            1.0 if self.padding is None else self.padding,
            self.buckets or (),
            None if self.lists_per_s is None else self.lists_per_s * self.efficiency,
        )


class _SidecarSpec(Written):
    requests_per_s: _Positive = Field(description="Requests a second that one sidecar decides")
    efficiency: float = Field(default=1.0, gt=0, le=1, description="Share of it that live traffic reaches")
    conditions: str | None = Field(default=None, max_length=300, description="How it was measured")


class _MeasuredSpec(Written):
    small: _StageSpec | None = None
    large: _StageSpec | None = None
    sidecar: _SidecarSpec | None = None


def parse_inline(written: str) -> dict[str, dict[str, Any]]:
    """Return what ``small=pairs_per_s:400,pair_tokens:120,large=tokens_per_s:60000`` says. Raises ConfigError."""
    told: dict[str, dict[str, Any]] = {}
    name = ""
    for part in written.split(","):
        before, equals, after = part.partition("=")
        if equals:
            name = before.strip()
            if name in told:
                raise ConfigError(f"--throughput: {name} is given twice")
            told[name] = {}
        key, colon, value = (after if equals else before).partition(":")
        key = key.strip()
        if not name or not colon or key in told[name]:
            raise ConfigError(
                "--throughput: write STAGE=RATE:NUMBER, as in small=pairs_per_s:400,large=tokens_per_s:60000"
            )
        try:
            told[name][key] = float(value)
        except ValueError:
            raise ConfigError(f"--throughput: {name}.{key}: not a number") from None
    return told


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several mappings by stage as one. Raises ConfigError where two tell of the same stage."""
    together: dict[str, Any] = {}
    for part in parts:
        again = sorted(together.keys() & part.keys())
        if again:
            raise ConfigError(f"throughput: {again[0]} is given twice")
        together |= part
    return together


def throughputs_of(data: Mapping[str, Any]) -> Throughputs:
    """Return throughputs by stage, checked. Raises ConfigError naming the stage and the key."""
    unknown = sorted(data.keys() - set(_MeasuredSpec.model_fields))
    if unknown:
        raise ConfigError(f"throughput: there is no {unknown[0]}; name small, large or sidecar")
    spec = checked(_MeasuredSpec, data, "throughput")
    stages = {StageName.SMALL: spec.small, StageName.LARGE: spec.large}
    sidecar = spec.sidecar
    return Throughputs(
        {name: each.throughput() for name, each in stages.items() if each is not None},
        None if sidecar is None else sidecar.requests_per_s * sidecar.efficiency,
    )
