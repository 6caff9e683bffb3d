"""Calibrations fitted on tables in which it is known what there is to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest, parse_artefact
from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.fit.calibrate import LEAST_QUERIES, Asked, calibrate
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.policy.release import Limits
from cascade.replay.evaluate import Question, evaluate
from cascade.replay.measure import Difference
from cascade.replay.policy import Policy
from cascade.replay.queries import Roles
from cascade.replay.table import ScoreTable, data_sha256
from cascade.types import ScoreSpace
from tests.fit.planted import ERRORS, ROLES, planted_table, shuffled

_ASKED = Asked(ROLES, k=5, small_space=ScoreSpace.LOGIT, large_space=ScoreSpace.LOGIT)


def _calibration(artefact: CalibrationArtefact) -> Calibration:
    return Calibration(artefact, artefact_digest(artefact_bytes(artefact)))


def _against_static(calibration: Calibration, table: ScoreTable, k: int, rounds: int = 2) -> Difference:
    """Replay a calibration on a table that it was not fitted on, against a constant top of the small order."""
    rule = CalibratedEscalation.model_validate(
        {
            "kind": "calibrated",
            "calibration": calibration.sha256,
            "k": k,
            "price_per_pair": 0.01,
            "rounds": rounds,
            "chunk": 4,
        }
    )
    policy = Policy(rule, FixedDepth(depth=50), Limits(), calibration)
    measured = evaluate({"t": table}, Question(ROLES, k=k, resamples=1000), calibration, policy).measured
    return next(one for one in measured.differences if (one.name, one.baseline) == ("policy", "static"))


@pytest.mark.parametrize("k", [10, 3, 1])
def test_a_channel_that_knows_more_beats_the_small_order(calibration: Calibration, k: int) -> None:
    """On queries of another draw the policy recovers more than static top-m at costs of 10 to 50%.

    With an interval clear of zero: the channel errs less than the small stage, independently of it.
    """
    area = _against_static(calibration, planted_table(120, seed=2), k).area_10_50
    assert area.interval is not None
    assert area.interval[0] is not None
    assert area.interval[0] > 0.0


def test_shuffled_large_scores_teach_nothing(planted: ScoreTable) -> None:
    """Fitted on large scores shuffled within each query, the policy is no better than static on true ones.

    What is left of p is noise: its order is one of chance, while static keeps the small order. So the
    difference lies below zero with all of its interval, whose half width is about .2.
    """
    artefact = calibrate([shuffled(planted, "large")], _ASKED)
    area = _against_static(_calibration(artefact), planted_table(120, seed=2), 5).area_10_50
    assert area.interval is not None
    assert area.interval[1] is not None
    assert area.interval[1] < 0.0
    assert artefact.benefit.status == "none-found"


def test_the_artefact_says_what_it_was_fitted_on(fitted: CalibrationArtefact, planted: ScoreTable) -> None:
    """Numbers, digests, channels, scorers, and where its estimates hold."""
    trained = fitted.trained_on
    assert (trained.queries, trained.first_stage, trained.seed, trained.where) == (110, "rrf60(bm25,dense)", 0, {})
    assert trained.pairs == 110 * 24
    assert f"sha256:{trained.data_sha256}" == data_sha256(planted, ["bm25", "dense", "small", "large"])
    assert len(set(trained.query_ids_sha256)) == 110
    assert (fitted.channels, fitted.k) == (("bm25", "dense"), 5)
    assert (fitted.small.name, fitted.small.space, fitted.small.fingerprint) == ("small", "logit", None)
    assert (fitted.valid.least_candidates, fitted.valid.most_candidates) == (10, 48)
    assert fitted.valid.least_present == {"small": 0.5, "bm25": 0.5, "dense": 0.5}
    assert (fitted.benefit.status, fitted.benefit.metric, fitted.benefit.queries) == ("shown", "ndcg@5", 110)
    assert fitted.score_maps_target == "P(judged relevant)"
    assert set(fitted.score_maps) == {"small", "large"}
    assert any(note.startswith("final order: ") for note in fitted.notes)
    assert any(note.startswith("score map of large: ") for note in fitted.notes)


def test_probabilities_hold_on_every_prefix_and_class(fitted: CalibrationArtefact) -> None:
    """Cross-fitted: the mean predicted is what came true, and the error is small.

    On 110 queries: two points for the mean, twice the floor for the error over all classes, as pairs of one query
    are not independent.
    """
    rows = fitted.reliability
    assert {row.prefix for row in rows} == {20, 24}
    assert {row.query_class for row in rows} == {"all", "identifier", "other"}
    assert len(rows) == 2 * 3 * 4
    for row in rows:
        assert row.predicted == pytest.approx(row.observed, abs=0.02)
        assert row.observed == pytest.approx(row.cutoff / row.prefix)
        assert bool(row.bins) == (row.query_class == "all")
        if row.query_class == "all":
            assert row.ece < 2.0 * row.ece_floor + 0.005
            assert row.pairs == 110 * row.prefix
            assert row.brier < row.observed * (1.0 - row.observed)


def test_prices_recover_more_the_lower_they_are(fitted: CalibrationArtefact) -> None:
    """Each target has the price that reaches it at the least cost, at a part of the pairs, told by judgements."""
    assert [point.target for point in fitted.prices] == [0.80, 0.90, 0.95, 0.98]
    assert [point.price for point in fitted.prices] == sorted((p.price for p in fitted.prices), reverse=True)
    assert [point.large_share for point in fitted.prices] == sorted(point.large_share for point in fitted.prices)
    for point in fitted.prices:
        assert point.recovered >= point.target
        assert 0.0 < point.large_share < 0.7
        assert point.judged_by == "judgements"


def test_whether_the_small_order_is_acceptable_is_estimated(fitted: CalibrationArtefact) -> None:
    """Its cross-fitted Brier score is no worse than that of the constant by more than noise."""
    model = fitted.acceptable
    assert model is not None
    assert model.target == "nDCG@5 loss at most 0.02"
    assert model.brier < model.share * (1.0 - model.share) + 0.02


@pytest.mark.long
def test_a_fit_is_the_same_every_time() -> None:
    """Byte for byte for one seed, whatever tables it came in and in what order; another seed is another artefact."""
    table = planted_table(100, 12)
    data = artefact_bytes(calibrate([table], _ASKED))
    halves = [table.take(range(50, 100)), table.take(range(50))]
    assert artefact_bytes(calibrate(halves, _ASKED)) == data
    assert artefact_bytes(calibrate([table], replace(_ASKED, seed=1))) != data
    assert artefact_bytes(parse_artefact(data, "a.json")) == data


def test_a_large_stage_that_harms_shows_no_benefit() -> None:
    """Worse than the small one by construction: judgements show it, and there is no price."""
    artefact = calibrate([planted_table(100, 12, errors={**ERRORS, "small": 0.3, "large": 3.0})], _ASKED)
    assert artefact.benefit.status == "none-found"
    assert artefact.benefit.mean is not None
    assert artefact.benefit.mean < 0.0
    assert artefact.prices == ()


def test_without_judgements_the_benefit_is_not_shown() -> None:
    """The large order stands in for prices; score maps and final orders are not fitted, and that is told."""
    artefact = calibrate([planted_table(100, 12, rel=None)], _ASKED)
    assert (artefact.benefit.status, artefact.benefit.mean, artefact.benefit.queries) == ("not-shown", None, 0)
    assert {point.judged_by for point in artefact.prices} == {"large-scores"}
    assert artefact.score_maps == {}
    assert artefact.score_maps_target == ""
    assert artefact.final_order is None
    assert artefact.notes == (
        "final order: not tried without judgements",
        "score maps: not fitted without judgements",
    )


@pytest.mark.parametrize(("cascade", "told"), [(0, False), (7, True)])
def test_queries_that_a_release_chose_are_told(*, cascade: int, told: bool) -> None:
    """Of decision records, those escalated whole by a release are no sample of the traffic, and the artefact says so."""
    rows = 6
    modes = ("cascade",) * (cascade * rows) + ("observe",) * ((30 - cascade) * rows)
    table = planted_table(30, rows, rel=None, attributes={"q_mode": modes})
    artefact = calibrate([table], replace(_ASKED, allow_few=True))
    note = "7 of 30 queries were escalated whole by a release: no sample of the traffic; --where q_mode=observe leaves them out"
    assert (note in artefact.notes) == told
    assert any("escalated whole" in each for each in artefact.notes) == told


def test_a_score_map_that_cannot_be_fitted_is_told() -> None:
    """Nothing but irrelevant documents teaches no map, and no final order."""
    table = planted_table(30, 6, rel=np.zeros(180, dtype=np.int64))
    artefact = calibrate([table], replace(_ASKED, allow_few=True))
    assert artefact.score_maps == {}
    assert artefact.notes[1:] == (
        "final order: not tried on 0 relevant of 180 judged pairs",
        "score map of small: not fitted: too few judged pairs of one kind, or it does not rise",
        "score map of large: not fitted: too few judged pairs of one kind, or it does not rise",
    )
    assert artefact.benefit.status == "none-found"


_FEW = planted_table(LEAST_QUERIES - 1, 12)


def test_e8_too_few_queries_are_refused() -> None:
    """With the number that there are and the one that is needed."""
    with pytest.raises(ConfigError, match="99 queries have scores of both stages; calibrating needs 100"):
        calibrate([_FEW], _ASKED)


def test_who_insists_gets_a_calibration_that_says_so() -> None:
    """The first note is that there were too few; below twenty nothing is fitted in any case."""
    few = _FEW.take(range(30))
    artefact = calibrate([few], replace(_ASKED, allow_few=True))
    assert artefact.notes[0] == "ONLY 30 QUERIES: below 100 the probabilities are not worth the name"
    with pytest.raises(ConfigError, match=r"19 queries .* calibrating needs 100, and 20 in any case"):
        calibrate([few.take(range(19))], replace(_ASKED, allow_few=True))


def test_few_judged_queries_are_enough_to_refute() -> None:
    """Where nothing will be escalated the probabilities do not matter: the artefact is there to say why."""
    harmful = planted_table(40, 12, errors={**ERRORS, "small": 0.3, "large": 3.0})
    artefact = calibrate([harmful], _ASKED)
    assert artefact.benefit.status == "none-found"
    assert artefact.notes[0].startswith("ONLY 40 QUERIES")


@pytest.mark.parametrize("candidates", [1, 2, 5, 9, 10, 11])
def test_short_lists_are_fitted(candidates: int) -> None:
    """Where all candidates are in the top ten there is nothing to learn of it, and nothing breaks."""
    artefact = calibrate([planted_table(30, candidates)], Asked(ROLES, k=10, allow_few=True))
    calibration = _calibration(artefact)
    draw = np.random.default_rng(0)
    small, channels = draw.normal(size=candidates), {name: draw.normal(size=candidates) for name in ("bm25", "dense")}
    assert calibration.misfit(small, channels) is None
    p = calibration.entry(small, channels)
    if candidates <= 10:
        assert p[:, 3] == pytest.approx(1.0)
        assert calibration.summary(p, np.argsort(-small), 10).margin == 1.0
    seen = np.where(np.arange(candidates) < candidates // 2, 1.0, np.nan)
    again = calibration.estimate_again(calibration.estimate(small, channels), seen, 10)
    assert np.isfinite(again).all()


def test_what_no_scorer_tells_is_no_obstacle(planted: ScoreTable) -> None:
    """A channel that is missing throughout, one that is constant, and one that is missing here and there."""
    table = planted.take(range(40))
    rows = len(table.doc_ids)
    gaps = np.where(np.arange(rows) % 7 == 0, np.nan, table.scores["dense"])
    scores = {**table.scores, "dense": gaps, "empty": np.full(rows, np.nan), "flat": np.zeros(rows)}
    roles = Roles(("dense", "empty", "flat"), "small", "large")
    artefact = calibrate([replace(table, scores=scores)], Asked(roles, k=5, allow_few=True))
    assert artefact.valid.least_present["empty"] == 0.0
    assert artefact.valid.least_present["dense"] == pytest.approx(0.5 * 20 / 24, abs=0.03)
    calibration = _calibration(artefact)
    some = np.linspace(-1.0, 1.0, 24)
    p = calibration.entry(some, {"dense": some, "empty": np.full(24, np.nan), "flat": np.zeros(24)})
    assert p[-1, 2] > p[0, 2]


def test_large_scores_that_are_all_alike_are_refused(planted: ScoreTable) -> None:
    """Nothing can be learnt from them."""
    flat = replace(planted, scores={**planted.scores, "large": np.full(len(planted.doc_ids), 0.3)})
    with pytest.raises(ConfigError, match="column large: all scores are equal"):
        calibrate([flat], _ASKED)


@pytest.mark.parametrize("k", [0, 2, 4, 11])
def test_a_length_that_is_not_estimated_is_refused(planted: ScoreTable, k: int) -> None:
    """Only the cutoffs have probabilities."""
    with pytest.raises(ConfigError, match=f"--k: {k} is none of 1, 3, 5, 10"):
        calibrate([planted], Asked(ROLES, k=k))


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        (Roles(("bm25",), "small", "huge"), "no column huge"),
        (Roles(("sparse",), "small", "large"), "no column sparse"),
        (Roles(("small",), "dense", "large"), "--first-stage: a channel cannot be called small"),
    ],
)
def test_columns_that_cannot_be_used_are_named(planted: ScoreTable, roles: Roles, told: str) -> None:
    """One that is not there, and a channel whose name is the small stage's."""
    with pytest.raises(ConfigError, match=told):
        calibrate([planted], Asked(roles, k=5))


def _fingerprint(space: str) -> dict[str, Any]:
    return {"model": "m", "revision": None, "max_length": 512, "score_space": space}


@pytest.mark.parametrize(
    ("asked", "told", "expected"),
    [
        (None, None, ScoreSpace.PROBABILITY),
        (None, "cosine", ScoreSpace.COSINE),
        (ScoreSpace.LOGIT, "cosine", ScoreSpace.LOGIT),
        (ScoreSpace.LOGIT, None, ScoreSpace.LOGIT),
    ],
)
def test_the_space_of_the_small_scores_is_asked_for_or_told_or_seen(
    planted: ScoreTable, asked: ScoreSpace | None, told: str | None, expected: ScoreSpace
) -> None:
    """By the option, else the table's conditions, else the scores: between 0 and 1 they are probabilities."""
    squashed = 1.0 / (1.0 + np.exp(-planted.scores["small"]))
    fingerprint = None if told is None else _fingerprint(told)
    table = replace(
        planted.take(range(20)),
        scores={**planted.take(range(20)).scores, "small": squashed[: 20 * 24]},
        conditions={
            "scorers": {"small": {"fingerprint": fingerprint}},
            "observed": {"small": {"weights_sha256": "1" * 64}, "large": None},
        },
    )
    artefact = calibrate([table], replace(_ASKED, small_space=asked, allow_few=True))
    assert (artefact.small.space, artefact.small.fingerprint) == (expected, fingerprint)
    assert (artefact.small.weights_sha256, artefact.large.weights_sha256) == ("1" * 64, None)
