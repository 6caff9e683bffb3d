"""The kinds of escalation that a release may name, checked whole before anything uses them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, model_validator

from cascade.policy.depth_rules import Condition
from cascade.policy.frozen import Frozen

__all__ = [
    "Accept",
    "CalibratedEscalation",
    "Direct",
    "Escalation",
    "EscalationSpec",
    "FusedEscalation",
    "NoEscalation",
    "StaticEscalation",
]

_FINAL_ORDER: Final = (
    "What orders the scored block: the large scores, or the calibration's fitted order where it has one"
)
_DIGEST: Final = "^sha256:[0-9a-f]{64}$"
Digest = Annotated[
    str, Field(pattern=_DIGEST, description="Digest of the calibration, as `cascade calibrate` prints it")
]


class NoEscalation(Frozen):
    """Send nothing to the large stage."""

    kind: Literal["none"] = "none"
    reason: str | None = Field(default=None, max_length=300, description="Why, as fitting wrote it")


class StaticEscalation(Frozen):
    """Send the top ``top_m`` of the small order to the large stage."""

    kind: Literal["static"]
    top_m: int = Field(ge=0, description="How many of the small order's first go to the large stage, within depth")


class FusedEscalation(Frozen):
    """Send the ``top_m`` candidates that the calibration finds most valuable, as many for every query."""

    kind: Literal["static-fused"]
    calibration: Digest
    top_m: int = Field(ge=0, description="How many go to the large stage, within depth")
    k: Literal[1, 3, 5, 10] = Field(default=10, description="Length of the answer's head that counts")
    safe_top_m: int = Field(default=20, ge=0, description="Top of the small order where the calibration does not hold")
    final_order: Literal["large", "fitted"] = Field(default="large", description=_FINAL_ORDER)


class Accept(Frozen):
    """Keep the small order where every threshold that is set holds."""

    margin_at_least: float | None = Field(default=None, ge=0, le=1, description="Fall of p(k) behind the k-th")
    entropy_at_most: float | None = Field(default=None, ge=0, description="Entropy of membership in the top k, nats")
    expected_loss_at_most: float | None = Field(
        default=None, ge=0, le=1, description="Share of discounted gain that the small order is expected to lose"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.margin_at_least is None and self.entropy_at_most is None and self.expected_loss_at_most is None:
            raise ValueError("set at least one threshold, or leave accept out")
        return self


class Direct(Frozen):
    """Send a query past the small stage where all conditions hold."""

    when: Annotated[tuple[Condition, ...], Field(min_length=1, strict=False)] = Field(
        description="Conditions on signals; all must hold, and a missing signal holds nothing"
    )
    top_m: int = Field(default=20, ge=1, description="How many of the first-stage order go to the large stage")


class CalibratedEscalation(Frozen):
    """Send the candidates whose expected discounted gain is worth their price.

    None of them: the small order is accepted. All: the query is escalated. Else: the cluster.
    """

    kind: Literal["calibrated"]
    calibration: Digest
    k: Literal[1, 3, 5, 10] = Field(default=10, description="Length of the answer's head that counts")
    price_per_pair: float = Field(
        gt=0, le=1, description="Expected share of the large order's discounted gain that a pair must be worth"
    )
    rounds: Literal[1, 2] = Field(default=2, description="With two, what the first saw decides what the second scores")
    first_round_factor: float = Field(
        default=8.0, ge=1, description="The first round scores what is worth this much more"
    )
    chunk: int = Field(default=10, ge=1, description="The first round scores at least so many, where they are worth it")
    max_share: float = Field(
        default=1.0, gt=0, le=1, description="Largest share of the depth that goes to the large stage"
    )
    accept: Accept | None = Field(default=None, description="Thresholds on which the small order stands")
    direct: Direct | None = Field(default=None, description="Queries that skip the small stage")
    margin_noise: float = Field(default=0.0, ge=0, description="Measured noise of the margin; accept clears it")
    safe_top_m: int = Field(default=20, ge=0, description="Top of the small order where the calibration does not hold")
    final_order: Literal["large", "fitted"] = Field(default="large", description=_FINAL_ORDER)


def _named(value: object) -> object:
    return {"kind": "none"} if value == "none" else value


Escalation = NoEscalation | StaticEscalation | FusedEscalation | CalibratedEscalation
EscalationSpec = Annotated[Annotated[Escalation, Discriminator("kind")], BeforeValidator(_named)]
