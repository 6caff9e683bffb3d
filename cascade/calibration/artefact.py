"""The file of a fitted calibration: what it holds, checked whole before anything uses it."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cascade.calibration.broken_rules import broken_rules
from cascade.calibration.features import SMALL
from cascade.calibration.gain import CUTOFFS
from cascade.errors import ConfigError
from cascade.types import ScoreSpace

__all__ = [
    "AcceptableModel",
    "Benefit",
    "CalibrationArtefact",
    "EntryModel",
    "FinalOrder",
    "IsotonicMap",
    "PlattMap",
    "PricePoint",
    "Reference",
    "ReferenceBins",
    "ReliabilityRow",
    "ScorerIdentity",
    "SecondRoundModel",
    "SmoothTable",
    "TrainedOn",
    "ValidRange",
    "artefact_bytes",
    "artefact_digest",
    "parse_artefact",
]

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class TrainedOn(_Frozen):
    """What the artefact was fitted on: enough to repeat it and to refuse certifying on it."""

    queries: int = Field(ge=1)
    pairs: int = Field(ge=1)
    data_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Digest of ids and of the columns used")
    query_ids_sha256: tuple[str, ...] = Field(description="Digest of each training query's id")
    where: dict[str, str] = Field(default_factory=dict, description="Which rows of the table, by column")
    seed: int = 0
    first_stage: str = Field(description="What the first-stage order was")


class ScorerIdentity(_Frozen):
    """What a scorer was: its column, the space of its raw scores, and its fingerprint where the table knew it.

    ``weights_sha256`` is the digest of the files of a model inside the sidecar, None where nobody told.
    """

    name: str
    space: ScoreSpace
    fingerprint: dict[str, str | int | None] | None = None
    weights_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")


class ValidRange(_Frozen):
    """Where the estimates hold. Outside it the safe mode of the release runs."""

    least_candidates: int = Field(ge=1)
    most_candidates: int = Field(ge=1)
    least_present: dict[str, float] = Field(
        description="Least share of candidates that a scorer must have scored; one that is left out, at least one"
    )


class SmoothTable(_Frozen):
    """One piecewise cubic a feature and output; see `cascade.calibration.additive.Smooths`."""

    features: tuple[str, ...]
    knots: Matrix
    coefficients: tuple[tuple[tuple[Vector, ...], ...], ...]


class EntryModel(_Frozen):
    """Logits of p(c) by cutoff, and last mu, the expected large score."""

    intercept: Vector
    pair: SmoothTable
    query: SmoothTable
    missing: Matrix


class SecondRoundModel(_Frozen):
    """See `cascade.calibration.second_round.SecondRound`."""

    least_scored: int = Field(
        ge=1, description="Fewest scored candidates that it was fitted on; with fewer it is not asked"
    )
    scale: float = Field(gt=0)
    covariance: Matrix
    bins: Vector
    noise: Annotated[Vector, Field(min_length=1)]
    centre: Matrix
    spread: Matrix
    weights: Matrix
    intercept: Vector


class PlattMap(_Frozen):
    """sigmoid(slope * score + intercept)."""

    kind: Literal["platt"] = "platt"
    slope: float = Field(ge=0)
    intercept: float


class IsotonicMap(_Frozen):
    """A rising curve through points."""

    kind: Literal["isotonic"]
    scores: Annotated[Vector, Field(min_length=1)]
    probabilities: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _rising(self) -> Self:
        pairs_of = (self.scores, self.probabilities)
        if len(self.scores) != len(self.probabilities) or any(list(v) != sorted(v) for v in pairs_of):
            raise ValueError("scores and probabilities must be as many and rise")
        return self


class AcceptableModel(_Frozen):
    """P(the small order is acceptable): logistic in expected loss, margin and entropy."""

    weights: Annotated[Vector, Field(min_length=3, max_length=3)]
    intercept: float
    target: str = Field(description="What counted as acceptable")
    share: float = Field(description="Share of training queries where it was")
    brier: float = Field(description="Brier score, cross-fitted")


class Benefit(_Frozen):
    """Whether the large stage helps at all: mean of Q_large - Q_small over judged queries, with its interval."""

    status: Literal["shown", "none-found", "not-shown"]
    metric: str
    queries: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


class PricePoint(_Frozen):
    """The cheapest price whose cross-fitted replay on the training queries recovered ``target`` of the gap.

    ``low`` and ``high`` are the 95% interval of ``recovered`` over queries: another sample of them recovers
    about so much, not the target.
    """

    target: float
    price: float
    recovered: float
    low: float | None = None
    high: float | None = None
    large_share: float
    judged_by: Literal["judgements", "large-scores"]


class ReliabilityRow(_Frozen):
    """Cross-fitted reliability of p(cutoff) on one slice."""

    prefix: int
    query_class: str
    cutoff: int
    pairs: int
    brier: float
    ece: float
    ece_floor: float
    predicted: float
    observed: float
    bins: tuple[tuple[int, float, float], ...] = ()


class FinalOrder(_Frozen):
    """A fitted order for the scored block: a weighted sum of the large score and a candidate's features."""

    large: float = Field(gt=0)
    features: dict[str, float]
    gain: float = Field(description="Cross-fitted gain in the metric over the large stage's own order")
    low: float
    high: float


class ReferenceBins(_Frozen):
    """How a number is distributed over the training queries: rising edges, and the share in each bin between them."""

    edges: Vector
    shares: tuple[Annotated[float, Field(gt=0, le=1)], ...]

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if len(self.shares) != len(self.edges) + 1 or list(self.edges) != sorted(self.edges):
            raise ValueError("edges must rise, and shares be one more")
        return self


class Reference(_Frozen):
    """What live traffic is held against: the best small score among the first ``candidates``, and the margin at k.

    Small scores are on the scale where a constant may be added.
    """

    candidates: int = Field(ge=1)
    score: ReferenceBins
    margin: ReferenceBins


class CalibrationArtefact(_Frozen):
    """Everything that fitting learnt, as numbers."""

    format: Literal["cascade-calibration/1"]
    method: Literal["splines+logistic"]
    trained_on: TrainedOn
    small: ScorerIdentity
    large: ScorerIdentity
    channels: tuple[str, ...]
    k: int
    cutoffs: tuple[int, ...] = CUTOFFS
    valid: ValidRange
    entry: EntryModel
    second_round: SecondRoundModel | None = None
    prices: tuple[PricePoint, ...] = ()
    benefit: Benefit
    acceptable: AcceptableModel | None = None
    score_maps: dict[Literal["small", "large"], Annotated[PlattMap | IsotonicMap, Field(discriminator="kind")]] = Field(
        default_factory=dict
    )
    score_maps_target: str = ""
    reliability: tuple[ReliabilityRow, ...] = ()
    final_order: FinalOrder | None = None
    reference: Reference | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _known_cutoffs(self) -> Self:
        if self.cutoffs != CUTOFFS:
            raise ValueError(f"cutoffs must be {list(CUTOFFS)}")
        if self.k not in CUTOFFS:
            raise ValueError(f"k must be one of {list(CUTOFFS)}")
        if len({*self.channels, SMALL}) <= len(self.channels):
            raise ValueError(f"channels must differ, and none may be called {SMALL}")
        return self


def parse_artefact(data: bytes, where: object) -> CalibrationArtefact:
    """Read an artefact. Raises ConfigError naming the key at fault, never its value."""
    try:
        return CalibrationArtefact.model_validate_json(data)
    except ValidationError as error:
        told = broken_rules(error)
    raise ConfigError(f"calibration {where}: {told}")


def artefact_bytes(artefact: CalibrationArtefact) -> bytes:
    """Return the canonical JSON of an artefact: sorted keys, no spaces, one newline at the end."""
    plain: dict[str, Any] = artefact.model_dump(mode="json")
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def artefact_digest(data: bytes) -> str:
    """Return ``sha256:`` of the file's bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
