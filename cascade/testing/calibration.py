"""A calibration made by hand: how likely a candidate enters the large stage's top follows its small score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from cascade.calibration.artefact import (
    Benefit,
    CalibrationArtefact,
    EntryModel,
    PricePoint,
    Reference,
    ScorerIdentity,
    SecondRoundModel,
    SmoothTable,
    TrainedOn,
    ValidRange,
    artefact_bytes,
    artefact_digest,
)
from cascade.calibration.calibrated import Calibration
from cascade.calibration.second_round import FEATURES
from cascade.types import ScoreSpace

__all__ = ["scripted_artefact", "scripted_calibration"]

_LEAST_Z: Final = -8.0
_MOST_Z: Final = 12.0
_NOTHING: Final = (0.0,) * 5
_INTERCEPT: Final = (-5.0, -3.5, -3.0, -1.0, 0.0)
_SLOPE: Final = (1.5, 1.5, 1.5, 1.5, 1.0)

Identity = Mapping[str, str | int | None]


def scripted_artefact(
    channels: Sequence[str] = ("bm25",),
    *,
    k: int = 5,
    channel_weight: float = 0.0,
    second_round: bool = False,
    least_candidates: int = 2,
    most_candidates: int = 200,
    least_present: Mapping[str, float] | None = None,
    small: Identity | None = None,
    large: Identity | None = None,
    small_space: ScoreSpace = ScoreSpace.LOGIT,
    large_space: ScoreSpace = ScoreSpace.LOGIT,
    benefit: Literal["shown", "none-found", "not-shown"] = "shown",
    prices: Sequence[PricePoint] = (),
    reference: Reference | None = None,
) -> CalibrationArtefact:
    """Return an artefact that is valid and small.

    The logit of p(c) is an intercept by cutoff plus 1.5 times the candidate's standardised small score,
    plus ``channel_weight`` times that of each channel: without a weight p is in the small order. ``small``
    and ``large`` are fingerprints, None where only names are known. A second round believes the first
    estimate and the reach of what was seen by halves.
    """
    weights = {"small": 1.0, **dict.fromkeys(channels, channel_weight)}
    return CalibrationArtefact(
        format="cascade-calibration/1",
        method="splines+logistic",
        trained_on=TrainedOn(
            queries=100, pairs=2000, data_sha256="0" * 64, query_ids_sha256=(), first_stage="rank_first"
        ),
        small=ScorerIdentity(name="small", space=small_space, fingerprint=None if small is None else dict(small)),
        large=ScorerIdentity(name="large", space=large_space, fingerprint=None if large is None else dict(large)),
        channels=tuple(channels),
        k=k,
        valid=ValidRange(
            least_candidates=least_candidates, most_candidates=most_candidates, least_present=dict(least_present or {})
        ),
        entry=EntryModel(
            intercept=_INTERCEPT,
            pair=SmoothTable(
                features=tuple(f"{name}.z" for name in weights),
                knots=((_LEAST_Z, _MOST_Z),) * len(weights),
                coefficients=tuple((_line(weight),) for weight in weights.values()),
            ),
            query=SmoothTable(
                features=("small.gap_1_10",), knots=((_LEAST_Z, _MOST_Z),), coefficients=(((_NOTHING,) * 4,),)
            ),
            missing=(_NOTHING,) * len(weights),
        ),
        second_round=_second_round(len(weights) + 1) if second_round else None,
        prices=tuple(prices),
        benefit=_benefit(benefit),
        reference=reference,
    )


def scripted_calibration(
    channels: Sequence[str] = ("bm25",),
    *,
    k: int = 5,
    channel_weight: float = 0.0,
    second_round: bool = False,
    least_candidates: int = 2,
    most_candidates: int = 200,
    small: Identity | None = None,
    large: Identity | None = None,
) -> Calibration:
    """Return the calibration of a `scripted_artefact`, under the digest of its bytes."""
    artefact = scripted_artefact(
        channels,
        k=k,
        channel_weight=channel_weight,
        second_round=second_round,
        least_candidates=least_candidates,
        most_candidates=most_candidates,
        small=small,
        large=large,
    )
    return Calibration(artefact, artefact_digest(artefact_bytes(artefact)))


def _line(weight: float) -> tuple[tuple[float, ...], ...]:
    """Return the cubic of a straight line through zero at z = 0, from its left knot."""
    slopes = tuple(weight * slope for slope in _SLOPE)
    return (_NOTHING, _NOTHING, slopes, tuple(slope * _LEAST_Z for slope in slopes))


def _second_round(effects: int) -> SecondRoundModel:
    return SecondRoundModel(
        least_scored=1,
        scale=1.0,
        covariance=tuple(tuple(float(row == column) for column in range(effects)) for row in range(effects)),
        bins=(),
        noise=(1.0,),
        centre=((0.0,) * len(FEATURES),) * 4,
        spread=((1.0,) * len(FEATURES),) * 4,
        weights=((0.5, 0.5, *(0.0,) * (len(FEATURES) - 2)),) * 4,
        intercept=(-1.0, -0.5, -0.25, 0.0),
    )


def _benefit(status: Literal["shown", "none-found", "not-shown"]) -> Benefit:
    match status:
        case "shown":
            return Benefit(status=status, metric="ndcg@5", queries=100, mean=0.05, low=0.02, high=0.08)
        case "none-found":
            return Benefit(status=status, metric="ndcg@5", queries=100, mean=-0.01, low=-0.04, high=0.02)
        case "not-shown":
            return Benefit(status=status, metric="ndcg@5", queries=0)
