"""The file of a certificate: what was promised of a policy, on which queries it was shown, and what it cost to show."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.calibration.artefact import ScorerIdentity
from cascade.calibration.broken_rules import broken_rules
from cascade.errors import ConfigError

__all__ = [
    "AsServed",
    "Attempts",
    "Certificate",
    "CertifiedPolicy",
    "Contract",
    "Data",
    "Fallbacks",
    "Judged",
    "LevelServed",
    "PathPoint",
    "SplitPart",
    "Splits",
    "certificate_bytes",
    "certificate_digest",
    "parse_certificate",
]

_HEX: Final = "^[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
Share = Annotated[float, Field(ge=0, le=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class Contract(_Frozen):
    """With confidence 1 - ``delta``, the mean loss against always-large is at most ``epsilon``.

    ``gold`` loses by judgements, ``silver`` by the large order alone. Two-sided losses are signed, so that
    gains offset harm; one-sided ones are max(loss, 0).
    """

    kind: Literal["gold", "silver"]
    sided: Literal["one", "two"]
    metric: Literal["ndcg"] = "ndcg"
    k: int = Field(ge=1)
    gain: str
    epsilon: float = Field(gt=0, lt=1)
    delta: float = Field(gt=0, lt=1)


class CertifiedPolicy(_Frozen):
    """What is promised of: a rule with its threshold, and of which release where one was named."""

    family: str
    setting: float = Field(description="The threshold on the path: a top m, or a price a pair")
    escalation: dict[str, Any] = Field(description="The rule, as a release holds it")
    depth: dict[str, Any] = Field(description="The rule of depth, as a release holds it")
    policy_digest: Digest | None = Field(default=None, description="Of the release that holds the rule")
    calibration: Digest | None = None


class SplitPart(_Frozen):
    """The queries of one part: how many, and the digest of their ids in order."""

    queries: int = Field(ge=0)
    sha256: str = Field(pattern=_HEX)


class Splits(_Frozen):
    """How queries were parted, by a hash of ``by`` with the seed, and which were left out."""

    seed: int
    by: str
    shares: tuple[Share, Share, Share]
    fit: SplitPart
    choose: SplitPart
    certify: SplitPart
    trained_left_out: int = Field(ge=0, description="Queries that trained the calibration, or have the same text")
    repeated_left_out: int = Field(ge=0, description="Queries whose text an earlier one has")
    unscored_left_out: int = Field(ge=0, description="Queries that a reranker scored no candidate of")
    without_relevant: int = Field(ge=0, description="Certifying queries whose every order is worth nought")


class Data(_Frozen):
    """What of the tables was read."""

    sha256: Digest
    queries: int
    pairs: int
    first_stage: str
    where: tuple[str, ...] = ()


class PathPoint(_Frozen):
    """One policy of the path, in the order of testing, as far as testing went."""

    family: str
    setting: float
    large_share: Share
    mean: float
    sigma: float
    p: Share
    accepted: bool


class Attempts(_Frozen):
    """Which attempt on the same data and contract this is, and what it may spend: delta 6 / (pi^2 number^2)."""

    number: int = Field(ge=1)
    delta: float = Field(gt=0, lt=1)
    identity: str = Field(pattern=_HEX, description="Digest of all that was asked and read")


class Fallbacks(_Frozen):
    """The rate of answers that no level gave, and the bound on the mean loss of what was answered in their place."""

    rate: Share
    counted: tuple[int, int] | None = None
    answer: str
    bound: float


class LevelServed(_Frozen):
    """The share of requests that a level serves, and the bound on its mean loss."""

    share: Share
    bound: float


class AsServed(_Frozen):
    """The mean loss of what is served: (1 - fallbacks) x the levels' bounds by share, and fallbacks x theirs."""

    levels: dict[str, LevelServed]
    fallbacks: Fallbacks | None
    normal_epsilon: float = Field(description="What was left of epsilon for the policy itself")
    bound: float


class Judged(_Frozen):
    """How much of both heads is judged, and the bound with what is not worth nothing, or the most there is."""

    large: Share
    policy: Share
    bound_unjudged_nothing: float
    bound_unjudged_most: float


class Certificate(_Frozen):
    """What was certified. There is no certificate of what could not be."""

    format: Literal["cascade-certificate/1"]
    contract: Contract
    n: int = Field(ge=1, description="Queries that certified, seen by neither fitting nor the choice of the path")
    mean: float
    sigma: float
    p: Share
    bound: float = Field(description="The mean loss is below it with confidence 1 - the delta of the attempt")
    method: str
    large_share: Share = Field(description="Share of always-large's pairs, on the queries that certified")
    policy: CertifiedPolicy
    splits: Splits
    data: Data
    small: ScorerIdentity
    large: ScorerIdentity
    channels: tuple[str, ...]
    attempts: Attempts
    path: tuple[PathPoint, ...]
    as_served: AsServed | None = None
    judged: Judged | None = None
    versions: dict[str, str]
    notes: tuple[str, ...] = ()


def parse_certificate(data: bytes, where: object) -> Certificate:
    """Read a certificate. Raises ConfigError naming the key at fault, never its value."""
    try:
        return Certificate.model_validate_json(data)
    except ValidationError as error:
        told = broken_rules(error)
    raise ConfigError(f"certificate {where}: {told}")


def certificate_bytes(certificate: Certificate) -> bytes:
    """Return the canonical JSON of a certificate: sorted keys, no spaces, one newline at the end."""
    plain: dict[str, Any] = certificate.model_dump(mode="json")
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def certificate_digest(data: bytes) -> str:
    """Return ``sha256:`` of the file's bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
