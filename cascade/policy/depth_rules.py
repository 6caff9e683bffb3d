"""The kinds of depth that a release may name, checked whole before anything uses them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, field_validator, model_validator

from cascade.errors import ConfigError
from cascade.policy.frozen import Frozen
from cascade.signals.catalogue import resolve
from cascade.signals.history import History, Seen
from cascade.signals.script import Script
from cascade.types import QueryClass

__all__ = [
    "EXAMPLE",
    "AdaptiveDepth",
    "Condition",
    "DepthRule",
    "DepthSpec",
    "FixedDepth",
    "GainAtDepth",
    "GainDepth",
    "GainSignal",
    "GreedyDepth",
    "HistoryNumbers",
    "SignalsDepth",
    "SkipDepth",
    "TenantDifficulty",
]


def _skip(value: object) -> object:
    return 0 if value == "skip" else value


def _known(value: str) -> str:
    try:
        resolve(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return value


_Enumerated = Field(strict=False)
Classes = Annotated[tuple[Annotated[QueryClass, _Enumerated], ...], Field(min_length=1, strict=False)]
Scripts = Annotated[tuple[Annotated[Script, _Enumerated], ...], Field(min_length=1, strict=False)]
SignalName = Annotated[str, Field(description="A signal of the table of signals")]
SkipOrDepth = Annotated[int, BeforeValidator(_skip), Field(ge=0)]


class SkipDepth(Frozen):
    """Score no candidate, unless the head repeats itself."""

    kind: Literal["skip"]
    default: int = Field(default=20, ge=1, description="Depth of a query whose head holds near-duplicates")
    duplicate_head: float = Field(
        default=0.8, ge=0, le=1, description="`head.duplicate` from which the first documents are near-duplicates"
    )


class FixedDepth(Frozen):
    """Score the same number of candidates for every query. A bare integer means this."""

    kind: Literal["fixed"] = "fixed"
    depth: int = Field(ge=0, description="How many of the first candidates are scored; 0 scores none")


class AdaptiveDepth(Frozen):
    """What every kind of depth has that differs between queries."""

    default: int = Field(ge=1, description="Depth where nothing else is decided")
    least: int = Field(default=1, ge=1, description="Shallowest depth, but for skip")
    most: int = Field(default=200, ge=1, description="Deepest depth")
    duplicate_head: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="`head.duplicate` from which the first documents are near-duplicates: the query is not skipped",
    )
    answer_separation: float = Field(
        default=3.0,
        ge=0,
        description="`channels.separation` below which no channel tells its head from its tail, so that the query "
        "may have no answer: it is not scored deeper than the default. A straight line has about 2.2",
    )

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        if self.least > min(self.default, self.most):
            raise ValueError("least must not be above default or most")
        return self


class GreedyDepth(AdaptiveDepth):
    """Score the best constant depth of the query's class, as it was fitted."""

    kind: Literal["greedy"]
    classes: Mapping[Annotated[QueryClass, _Enumerated], SkipOrDepth] = Field(
        description="Depth by query class, or `skip`; a class that is left out has the default"
    )


class Condition(Frozen):
    """Ask one thing of a query: bounds of a signal, its class or its script. A missing signal fails it."""

    signal: SignalName | None = None
    at_least: float | None = Field(default=None, description="Holds where the signal is this or greater")
    above: float | None = Field(default=None, description="Holds where the signal is greater than this")
    at_most: float | None = Field(default=None, description="Holds where the signal is this or less")
    below: float | None = Field(default=None, description="Holds where the signal is less than this")
    query_class: Classes | None = Field(default=None, description="Holds where the query is of one of these classes")
    script: Scripts | None = Field(default=None, description="Holds where the query's main script is one of these")

    @field_validator("signal")
    @classmethod
    def _signal_exists(cls, value: str | None) -> str | None:
        return None if value is None else _known(value)

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if sum(asked is not None for asked in (self.signal, self.query_class, self.script)) != 1:
            raise ValueError("name exactly one of signal, query_class and script")
        bounded = any(bound is not None for bound in (self.at_least, self.above, self.at_most, self.below))
        if bounded != (self.signal is not None):
            raise ValueError("a signal needs a bound: at_least, above, at_most or below; nothing else takes one")
        return self


class DepthRule(Frozen):
    """Give a depth to queries for which every condition holds."""

    when: Annotated[tuple[Condition, ...], Field(min_length=1, strict=False)] = Field(
        description="Conditions that must all hold"
    )
    depth: SkipOrDepth = Field(description="How many of the first candidates are scored, or `skip`")


class SignalsDepth(AdaptiveDepth):
    """Score as deep as the first rule says whose conditions hold, else the default."""

    kind: Literal["signals"]
    rules: Annotated[tuple[DepthRule, ...], Field(strict=False)] = Field(description="Rules; the first match wins")


class GainSignal(Frozen):
    """One signal of a fitted gain and how it is standardised: (value - mean) / sd, clipped to five either way."""

    signal: SignalName
    mean: float
    sd: float = Field(gt=0)

    @field_validator("signal")
    @classmethod
    def _signal_exists(cls, value: str) -> str:
        return _known(value)


class GainAtDepth(Frozen):
    """Predict the quality gained at one depth: intercept + weights . z, and for each missing signal its own term."""

    depth: int = Field(ge=0, description="0 is skip")
    intercept: float
    weights: Annotated[tuple[float, ...], Field(strict=False)]
    missing: Annotated[tuple[float, ...], Field(strict=False)]


class GainDepth(AdaptiveDepth):
    """Score as deep as the predicted gain in quality pays at one price for a candidate scored."""

    kind: Literal["gain"]
    price_per_candidate: float = Field(ge=0, description="Quality that one more candidate must gain")
    signals: Annotated[tuple[GainSignal, ...], Field(strict=False)] = Field(description="What the gain is read from")
    depths: Annotated[tuple[GainAtDepth, ...], Field(min_length=1, strict=False)] = Field(
        description="The gain at each depth that may be chosen, shallowest first"
    )

    @model_validator(mode="after")
    def _grid_fits(self) -> Self:
        if any(one.depth >= other.depth for one, other in pairwise(self.depths)):
            raise ValueError("depths must ascend")
        if any({len(at.weights), len(at.missing)} != {len(self.signals)} for at in self.depths):
            raise ValueError("each depth has one weight and one missing term for each signal")
        if not self.depths[-1].depth:
            raise ValueError("a depth above 0 is needed")
        return self


def _depth(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"kind": "fixed", "depth": value}
    return {"kind": "fixed", **value} if isinstance(value, dict) and "kind" not in value else value


DepthSpec = Annotated[
    Annotated[SkipDepth | FixedDepth | GreedyDepth | SignalsDepth | GainDepth, Discriminator("kind")],
    BeforeValidator(_depth),
]
"""The depth of a release: one of the kinds, or a bare integer for a fixed one."""


class TenantDifficulty(Frozen):
    """The mean difficulty of a tenant's queries of one class, and how many they were."""

    mean: float
    count: int = Field(ge=0)


class HistoryNumbers(Frozen):
    """Historical difficulty, frozen with the release: the signal ``history.difficulty``."""

    classes: Mapping[Annotated[QueryClass, _Enumerated], float] = Field(description="Mean over all tenants, by class")
    tenants: Mapping[str, Mapping[Annotated[QueryClass, _Enumerated], TenantDifficulty]] = Field(
        default={}, description="Mean and count, by tenant and class"
    )
    shrinkage: float = Field(default=50.0, gt=0, description="Queries that the class's mean counts for")

    def frozen(self) -> History:
        """Return the numbers as the signals read them."""
        return History(
            dict(self.classes),
            {
                tenant: {query_class: Seen(seen.mean, seen.count) for query_class, seen in classes.items()}
                for tenant, classes in self.tenants.items()
            },
            self.shrinkage,
        )


EXAMPLE: Final[Mapping[str, Any]] = {
    "kind": "signals",
    "default": 50,
    "most": 100,
    "rules": [
        {
            "when": [{"query_class": ["identifier"]}, {"signal": "bm25.gap_tail", "at_least": 3.0}],
            "depth": 20,
        },
        {
            "when": [
                {"signal": "bm25.entropy", "at_least": 0.85},
                {"signal": "overlap_20.bm25.dense", "at_most": 0.25},
            ],
            "depth": 100,
        },
    ],
}
"""What rules look like, for channels bm25 and dense: an identifier that leads clearly is settled early; flat scores
in channels that disagree are read deeper. Measure on your own scores before you use them: wider is not always better."""
