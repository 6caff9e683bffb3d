"""A calibration made for tests: the logit of entering the top rises with the sum of all z."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.calibration.artefact import (
    Benefit,
    CalibrationArtefact,
    EntryModel,
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

__all__ = ["made_artefact", "made_calibration"]

_LEAST_Z, _MOST_Z = -8.0, 12.0


def made_artefact(
    channels: Sequence[str] = ("bm25", "dense"),
    *,
    least_candidates: int = 2,
    second: bool = False,
    trained_on: Sequence[str] = (),
) -> CalibrationArtefact:
    """Return an artefact for columns ``small`` and ``large``; no scorer's scores need to be there."""
    names = ("small", *channels)
    slopes = (1.5,) * 4 + (1.0,)
    nothing = (0.0,) * 5
    line = (nothing, nothing, slopes, tuple(slope * _LEAST_Z for slope in slopes))
    flat = (nothing,) * 4
    return CalibrationArtefact(
        format="cascade-calibration/1",
        method="splines+logistic",
        trained_on=TrainedOn(
            queries=1, pairs=1, data_sha256="0" * 64, query_ids_sha256=tuple(trained_on), first_stage="rrf60"
        ),
        small=ScorerIdentity(name="small", space=ScoreSpace.LOGIT),
        large=ScorerIdentity(name="large", space=ScoreSpace.LOGIT),
        channels=tuple(channels),
        k=5,
        valid=ValidRange(least_candidates=least_candidates, most_candidates=200, least_present={}),
        entry=EntryModel(
            intercept=(-5.0, -3.5, -3.0, -1.0, 0.0),
            pair=SmoothTable(
                features=tuple(f"{name}.z" for name in names),
                knots=((_LEAST_Z, _MOST_Z),) * len(names),
                coefficients=((line,),) * len(names),
            ),
            query=SmoothTable(features=("small.gap_1_10",), knots=((_LEAST_Z, _MOST_Z),), coefficients=((flat,),)),
            missing=(nothing,) * len(names),
        ),
        second_round=_second_round(len(names) + 1) if second else None,
        benefit=Benefit(status="not-shown", metric="ndcg", queries=0),
    )


def _second_round(effects: int) -> SecondRoundModel:
    """Return a second round that believes the first estimate and the reach of what was seen by halves."""
    weights = (0.5, 0.5, *(0.0,) * (len(FEATURES) - 2))
    return SecondRoundModel(
        least_scored=1,
        scale=1.0,
        covariance=tuple(tuple(float(row == column) for column in range(effects)) for row in range(effects)),
        bins=(),
        noise=(1.0,),
        centre=((0.0,) * len(FEATURES),) * 4,
        spread=((1.0,) * len(FEATURES),) * 4,
        weights=(weights,) * 4,
        intercept=(-1.0, -0.5, -0.25, 0.0),
    )


def made_calibration(
    channels: Sequence[str] = ("bm25", "dense"),
    *,
    least_candidates: int = 2,
    second: bool = False,
    trained_on: Sequence[str] = (),
) -> Calibration:
    """Return the calibration of that artefact."""
    artefact = made_artefact(channels, least_candidates=least_candidates, second=second, trained_on=trained_on)
    return Calibration(artefact, artefact_digest(artefact_bytes(artefact)))
