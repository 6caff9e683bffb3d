"""The model of a release: what it may say, checked whole before anything uses it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from cascade.calibration.broken_rules import broken_rules
from cascade.errors import ConfigError
from cascade.policy.budget import Budgets
from cascade.policy.depth_rules import DepthSpec, HistoryNumbers
from cascade.policy.escalation_rules import (
    CalibratedEscalation,
    EscalationSpec,
    FusedEscalation,
    NoEscalation,
)
from cascade.policy.frozen import Frozen
from cascade.policy.level_specs import LevelSpec, whole_at
from cascade.policy.overload import Overload
from cascade.policy.rollout_rules import GuardrailLimits, Prices, RolloutRules, ShadowRules, SmokeQuery
from cascade.policy.stage_specs import (
    Activation,
    ApiStage,
    Auth,
    BreakerRules,
    ChatStage,
    EmbeddingStage,
    HostedStage,
    HttpStage,
    OnePair,
    OnnxStage,
    Pooling,
    StageBase,
    Stages,
    StageSpec,
    TeiStage,
    TokenBudget,
    VllmStage,
    Weights,
    Windows,
)
from cascade.policy.tenant_limits import TenantLimits, TenantName
from cascade.types import Request

__all__ = [
    "Activation",
    "ApiStage",
    "Auth",
    "BreakerRules",
    "Budgets",
    "ChatStage",
    "EmbeddingStage",
    "Evidence",
    "GuardrailLimits",
    "HostedStage",
    "HttpStage",
    "Limits",
    "OnePair",
    "OnnxStage",
    "Overload",
    "Pooling",
    "Prices",
    "Release",
    "RolloutRules",
    "ShadowRules",
    "SmokeQuery",
    "StageBase",
    "StageSpec",
    "Stages",
    "TeiStage",
    "TenantLimits",
    "TokenBudget",
    "VllmStage",
    "Weights",
    "Windows",
    "parse_release",
    "policy_digest",
    "release_digest",
]

Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_NO_POLICY = frozenset({"release", "evidence", "rollout"})
"""What changes no answer: a name, what was measured, how it is rolled out."""


class Limits(Frozen):
    """Bound what one request may ask for."""

    max_candidates: int = Field(default=200, ge=1, description="Candidates scored; the rest keep first-stage order")
    max_documents: int = Field(default=2048, ge=1, description="Candidates accepted; more are refused")
    max_request_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens accepted, by estimate: of the query and of the documents that may be scored, as they were "
        "sent; more are refused. Unset: what a body may hold",
    )
    tenants: Mapping[TenantName, TenantLimits] = Field(
        default={},
        description="Weights and quotas by tenant; one that is not named has a weight of 1 and no quota. No part of the policy digest",
    )


def _probe(value: object) -> object:
    return "off" if value is False else value  # YAML reads a bare off so


class Evidence(Frozen):
    """What was measured of a release, by digest of the file. It is no part of the policy digest."""

    certificate: Digest | None = Field(default=None, description="Digest of the certificate of its quality")
    report: Digest | None = Field(default=None, description="Digest of the report of its evaluation")


class Release(Frozen):
    """One release: the whole behaviour of the sidecar, under one name."""

    release: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Its name, in headers and logs")
    mode: Literal["cascade", "observe"] = Field(
        default="cascade",
        description="`observe`: the large stage scores every candidate as before, the small one beside the answer, and "
        "records hold both and what the release would have decided",
    )
    stages: Stages = Field(description="`small` and `large`, each a stage; either may be left out")
    depth: DepthSpec = Field(description="How many candidates the small stage scores: a number, or a kind")
    escalation: EscalationSpec = Field(description="What the large stage scores: none, or a kind")
    history: HistoryNumbers | None = Field(
        default=None, description="How hard queries were by class and tenant, for the signal `history.difficulty`"
    )
    budgets: Budgets = Field(description="How the time of a request is split")
    limits: Limits = Field(default=Limits(), description="What one request may ask for")
    fallback: Literal["original-order", "error"] = Field(
        default="original-order", description="What a degraded answer is: an order with status 200, or an error 503"
    )
    probe: Annotated[Literal["off", "warn", "enforce"], BeforeValidator(_probe)] = Field(
        default="warn",
        description="Known pairs at start: not scored, told of in the log, or not ready before they are scored right",
    )
    levels: Annotated[tuple[LevelSpec, ...], Field(strict=False)] = Field(
        default=(),
        description="Load levels, each cheaper than the one before; the first is the release as it stands, "
        "and overrides nothing",
    )
    overload: Overload = Field(default=Overload(), description="How the levels are stepped")
    rollout: RolloutRules = Field(default=RolloutRules(), description="How it is rolled out")
    evidence: Evidence | None = Field(default=None, description="Digests of what was measured of it")

    @property
    def calibration(self) -> str | None:
        """Return the digest of the calibration that the escalation reads, None where it reads none."""
        rule = self.escalation
        return rule.calibration if isinstance(rule, FusedEscalation | CalibratedEscalation) else None

    def refuses(self, request: Request) -> bool:
        """Tell whether an error stands in place of a degraded answer to a request: its caller wants that, or the release."""
        return request.fail_closed or self.fallback == "error"

    def at(self, level: LevelSpec) -> Release:
        """Return the whole release that a level is; it has no levels. Raises pydantic's ValidationError."""
        return Release(**whole_at({name: getattr(self, name) for name in type(self).model_fields}, level))

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        if self.stages.large is None and not isinstance(self.escalation, NoEscalation):
            raise ValueError("escalation needs a large stage; without one it is none")
        if self.mode == "observe" and (self.stages.small is None or self.stages.large is None):
            raise ValueError("mode observe scores with a small and a large stage; name both")
        if self.mode == "cascade" and self.stages.large is not None and isinstance(self.escalation, NoEscalation):
            raise ValueError("a large stage that nothing escalates to; leave it out")
        if self.stages.small is None and isinstance(self.escalation, FusedEscalation | CalibratedEscalation):
            raise ValueError(f"escalation {self.escalation.kind} reads small scores; it needs a small stage")
        return self

    @model_validator(mode="after")
    def _orders_fit(self) -> Self:
        small, large, rule = self.stages.small, self.stages.large, self.escalation
        if small is not None and small.orders:
            raise ValueError(f"stages.small: adapter {small.adapter} orders lists; only the large stage may")
        if large is None or not large.orders:
            return self
        if self.mode == "observe":
            raise ValueError(
                f"mode observe records scores, and adapter {large.adapter} gives an order; use mode cascade"
            )
        if rule.kind in ("static-fused", "calibrated"):
            raise ValueError(
                f"escalation {rule.kind} is calibrated on large scores, and adapter {large.adapter} gives an order; use static"
            )
        return self

    @model_validator(mode="after")
    def _levels_fit(self) -> Self:
        names = [level.name for level in self.levels]
        if not names:
            return self
        if self.mode == "observe":
            raise ValueError("mode observe answers by the large stage as before; it has no levels")
        if len(set(names)) < len(names):
            raise ValueError("levels: each needs a name of its own")
        if self.levels[0].overrides:
            raise ValueError(f"level {names[0]}: the first level is the release as it stands; it overrides nothing")
        for level in self.levels[1:]:
            self._check_level(level)
        return self

    def _check_level(self, level: LevelSpec) -> None:
        try:
            whole = self.at(level)
        except ValidationError as error:
            raise ValueError(f"level {level.name}: {broken_rules(error, 'release')}") from None
        if whole.calibration not in {None, self.calibration}:
            raise ValueError(f"level {level.name}: escalation.calibration must be the release's own")


def parse_release(data: Mapping[str, Any]) -> Release:
    """Check a release that was read and expanded. Raises ConfigError naming each key, never its value."""
    try:
        return Release.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(broken_rules(error, "release")) from None


def release_digest(data: Mapping[str, Any]) -> str:
    """Return ``sha256:`` of the canonical JSON of a release as written, variables unexpanded."""
    return _digest(data)


def policy_digest(data: Mapping[str, Any]) -> str:
    """Return the digest of what a release does to a query: the release's without its name, evidence, rollout and tenants.

    Weights and quotas say whose request is served, a tuning and the form of attention how fast, not what becomes of it: a
    report or a certificate does not speak of them.
    """
    kept = {key: value for key, value in data.items() if key not in _NO_POLICY}
    limits = data.get("limits")
    if isinstance(limits, Mapping) and "tenants" in limits:
        kept["limits"] = _without(limits, "tenants")
        if not kept["limits"]:
            del kept["limits"]
    stages = data.get("stages")
    if isinstance(stages, Mapping):
        kept["stages"] = {name: _without(spec, "tuning", "attention") for name, spec in stages.items()}
    return _digest(kept)


def _without(value: Any, *names: str) -> Any:
    return {key: item for key, item in value.items() if key not in names} if isinstance(value, Mapping) else value


def _digest(data: Mapping[str, Any]) -> str:
    canonical = orjson.dumps(dict(data), option=orjson.OPT_SORT_KEYS)
    return "sha256:" + hashlib.sha256(canonical).hexdigest()
