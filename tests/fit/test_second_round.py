"""Fitting the second round on residuals whose law is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from cascade.calibration.artefact import CalibrationArtefact
from cascade.calibration.calibrated import Calibration, Estimate
from cascade.calibration.features import Described
from cascade.calibration.gain import value
from cascade.fit.cross import cross_fit
from cascade.fit.second_round import fit_second_round
from cascade.fit.training import TrainingQuery, top_c, training_query
from cascade.metrics import Gain
from cascade.replay.queries import replayed
from cascade.types import ScoreSpace
from tests.fit.planted import ROLES, planted_table

FloatArray = npt.NDArray[np.float64]

_SIGMA = np.array([[0.6, 0.2, 0.0], [0.2, 0.5, -0.1], [0.0, -0.1, 0.3]])
_NOISE = (0.2, 0.5)
_SCALE = 3.0


def _simulated(queries: int, candidates: int, seed: int) -> tuple[list[TrainingQuery], list[Estimate]]:
    """Draw large scores from the model itself: mu, effects that differ by query, and noise that depends on mu."""
    random = np.random.default_rng(seed)
    root = np.linalg.cholesky(_SIGMA)
    training, estimates = [], []
    for _ in range(queries):
        effects = np.column_stack([np.ones(candidates), random.uniform(-1.5, 1.5, (candidates, 2))])
        mu = random.normal(size=candidates)
        noise = np.where(mu < 0.0, *_NOISE)
        t = mu + effects @ (root @ random.normal(size=3)) + np.sqrt(noise) * random.normal(size=candidates)
        large = _SCALE * t
        training.append(TrainingQuery(mu, {"bm25": effects[:, 1]}, large))
        logits = np.sort(random.normal(size=(candidates, 4)), axis=1) + 1.5 * mu[:, None]
        p = 1.0 / (1.0 + np.exp(-logits))
        described = Described(np.zeros((candidates, 1)), np.zeros(1), np.zeros((candidates, 2)), effects)
        estimates.append(Estimate(described, logits, mu, p))
    return training, estimates


def test_em_recovers_the_law_of_the_residuals() -> None:
    """Sigma within .15 and the noise within 8%, from 400 queries of 30.

    An element of Sigma from 400 draws has a standard error of at most .6 sqrt(2 / 400) = .04, and each query
    tells its effects up to noise / 30; .15 is more than three of both. Of the noise there are 12,000 draws in all,
    so that 8% is three of its errors in a bin of 2,000.
    """
    training, estimates = _simulated(400, 30, 1)
    model = fit_second_round(training, estimates, ("bm25",), 10, _SCALE, 0)
    assert model is not None
    assert np.abs(np.array(model.covariance) - _SIGMA).max() < 0.15
    centres = [-1.5, *((low + high) / 2 for low, high in pairwise(model.bins)), 1.5]
    pure = [(centre, noise) for centre, noise in zip(centres, model.noise, strict=True) if abs(centre) > 0.35]
    assert len(pure) >= 4
    for centre, noise in pure:
        assert noise == pytest.approx(_NOISE[0] if centre < 0 else _NOISE[1], rel=0.08)


def test_scores_that_were_not_given_are_left_out_of_the_fit() -> None:
    """Missing large scores change the figures a little and nothing else."""
    training, estimates = _simulated(150, 30, 2)
    gaps = [replace(query, large=np.where(np.arange(30) % 6 == 0, np.nan, query.large)) for query in training]
    model = fit_second_round(gaps, estimates, ("bm25",), 10, _SCALE, 0)
    assert model is not None
    assert np.abs(np.array(model.covariance) - _SIGMA).max() < 0.3
    assert np.isfinite(np.array(model.weights)).all()


def test_lists_too_short_for_a_second_round_have_none() -> None:
    """Of six candidates all would be scored in the first."""
    training, estimates = _simulated(30, 6, 3)
    assert fit_second_round(training, estimates, ("bm25",), 10, _SCALE, 0) is None


def test_what_is_always_or_never_true_is_a_constant() -> None:
    """Of nine candidates every one is in the top ten; where the first is always among the scored, none of the rest is."""
    training, estimates = _simulated(60, 9, 4)
    for query, estimate in zip(training, estimates, strict=True):
        query.large[int(np.argmax(value(estimate.p, 10)))] = 1e3  # the most valuable is never left for later
    model = fit_second_round(training, estimates, ("bm25",), 10, _SCALE, 0)
    assert model is not None
    assert (model.intercept[0], model.intercept[3]) == (-700.0, 700.0)
    assert not np.array(model.weights)[[0, 3]].any()
    assert np.array(model.weights)[[1, 2]].any(axis=1).all()


def test_large_scores_seen_tell_of_the_rest(fitted: CalibrationArtefact) -> None:
    """In queries whose large scores follow the channel that the small ones do not, re-estimating predicts better.

    By log loss of p(5) over the candidates left after the ten most valuable were scored.
    """
    random = np.random.default_rng(5)
    tables = []
    for seed in (11, 12):
        table = planted_table(110, 24, seed)
        follows = np.repeat(random.normal(0.0, 1.5, 110), 24) * table.scores["bm25"]
        tables.append(replace(table, scores={**table.scores, "large": table.scores["large"] + follows}))
    train, test = (
        [training_query(q, ScoreSpace.LOGIT, ScoreSpace.LOGIT) for q in replayed([t], ROLES, 5, Gain.LINEAR).queries]
        for t in tables
    )
    scale = float(np.std(np.concatenate([query.large for query in train])))
    crossed = cross_fit(train, ("bm25", "dense"), scale, 3, 0)
    second = fit_second_round(train, crossed.estimates(train), ("bm25", "dense"), 5, scale, 0)
    artefact = fitted.model_copy(update={"entry": crossed.models[0], "second_round": second})
    calibration = Calibration(artefact, "sha256:1")
    before: list[float] = []
    after: list[float] = []
    for query in test:
        first = calibration.estimate(query.small, query.channels)
        by_value = np.argsort(-calibration.value(first.p), kind="stable")
        seen = np.full(24, np.nan)
        seen[by_value[:10]] = query.large[by_value[:10]]
        left = by_value[10:]
        entered = top_c(query.large)[left, 2]
        for losses, p in ((before, first.p), (after, calibration.estimate_again(first, seen, 5))):
            clipped = np.clip(p[left, 2], 1e-6, 1.0 - 1e-6)
            losses.extend((-np.where(entered, np.log(clipped), np.log1p(-clipped))).tolist())
    assert np.mean(after) < 0.9 * np.mean(before)
