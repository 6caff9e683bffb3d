"""What a release says of how it is rolled out: its steps, what must be shown at each, and what is asked beforehand."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, PlainSerializer, model_validator

from cascade.policy.frozen import Frozen

__all__ = ["GuardrailLimits", "Prices", "RolloutRules", "ShadowRules", "SmokeQuery"]

_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_Percent = Annotated[float, Field(ge=0, le=100)]


def _redacted(text: str) -> str:
    return f"<{len(text)} characters>"


_Asked = Annotated[str, Field(min_length=1, max_length=20_000), PlainSerializer(_redacted)]
"""Text that is asked of a release. It is written nowhere, not where the release is shown either."""


class ShadowRules(Frozen):
    """What is scored beside answers by a release that is being rolled out, and the bounds of that."""

    share: float = Field(default=0.05, ge=0, le=1, description="Share of requests that are scored beside their answer")
    in_flight: int = Field(default=4, ge=1, le=256, description="Requests scored beside at once; more wait")
    queue: int = Field(default=64, ge=0, le=10_000, description="Requests that wait to be; more are dropped")
    max_bytes: int = Field(default=64_000_000, ge=1, description="Text held for them; what would exceed it is dropped")
    max_ms: float = Field(default=2000, gt=0, description="Time that one may take")


class GuardrailLimits(Frozen):
    """How much worse than the stable release is still within bounds; null switches a guardrail off.

    All but `cost` and `drift_psi` are differences: 0.01 of `late` lets one answer in a hundred more be late.
    """

    late: float | None = Field(default=0.01, ge=0, lt=1, description="More answers after their deadline, as a share")
    errors: float | None = Field(
        default=0.005, ge=0, lt=1, description="More requests that got an error in place of an order, as a share"
    )
    fallback: float | None = Field(default=0.02, ge=0, lt=1, description="More degraded answers, as a share")
    escalation: float | None = Field(
        default=0.10, ge=0, lt=1, description="More of the candidates sent to the large stage, as a share"
    )
    cost: float | None = Field(
        default=0.25, ge=0, le=10, description="How much dearer a request may be: 0.25 is a quarter more"
    )
    ranking_loss: float | None = Field(
        default=0.01, ge=0, lt=1, description="nDCG lost, by pairs scored beside, and by judged queries where named"
    )
    drift_psi: float | None = Field(
        default=0.25, gt=0, description="Population stability index of the best score, of a stage that is the same"
    )


class Prices(Frozen):
    """What a pair of query and document costs at each stage, in any one unit that all releases share."""

    small: float = Field(default=0.1, ge=0, description="A pair scored by the small stage")
    large: float = Field(default=1.0, ge=0, description="A pair scored by the large stage")


class SmokeQuery(Frozen):
    """One query that a release must answer before it serves."""

    query: _Asked = Field(repr=False, description="The query")
    documents: Annotated[tuple[_Asked, ...], Field(strict=False)] = Field(
        min_length=1, max_length=200, repr=False, description="Its documents"
    )
    first: int | None = Field(default=None, ge=0, description="Which document must come first, counted from 0")

    @model_validator(mode="after")
    def _first_is_there(self) -> Self:
        if self.first is not None and self.first >= len(self.documents):
            raise ValueError(f"first: there is no document {self.first}; the first is 0")
        return self


class RolloutRules(Frozen):
    """How a release is rolled out. It is no part of the policy digest: it changes no answer."""

    steps: Annotated[tuple[_Percent, ...], Field(strict=False)] = Field(
        default=(1.0, 5.0, 25.0, 100.0),
        min_length=1,
        max_length=20,
        description="Percent of the traffic at each step, rising to 100. A first 0 is scored beside answers only; "
        "`[0]` alone never goes further",
    )
    min_queries: int = Field(
        default=500, ge=1, description="Answers of the release at each step, at least; at a step of 0 pairs beside"
    )
    min_seconds: float = Field(default=60, ge=0, description="Time at each step, at least")
    warm_up: int = Field(
        default=20,
        ge=0,
        description="First answers of the release that may be late or degraded: caches and connections are cold",
    )
    alpha: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="Probability that a release within all limits is ever rolled back, and that one beyond a limit "
        "passes it",
    )
    shadow: ShadowRules = Field(default=ShadowRules(), description="What is scored beside answers")
    guardrails: GuardrailLimits = Field(default=GuardrailLimits(), description="How much worse is still within bounds")
    prices: Prices = Field(default=Prices(), description="What a pair costs at each stage")
    gold: _Digest | None = Field(default=None, description="Digest of a file of judged queries, asked of both releases")
    smoke: Annotated[tuple[SmokeQuery, ...], Field(strict=False)] = Field(
        default=(), max_length=64, description="Queries that it must answer before it serves"
    )

    @model_validator(mode="after")
    def _steps_rise(self) -> Self:
        if self.steps == (0.0,):
            return self
        if any(one >= other for one, other in pairwise(self.steps)):
            raise ValueError("steps: each must be above the one before")
        if self.steps[-1] != 100:
            raise ValueError("steps: the last must be 100, or 0 the only one")
        if not any(0 < step < 100 for step in self.steps):
            raise ValueError("steps: a share between 0 and 100 must come before 100; without one nothing is compared")
        return self
