"""Ranking metrics, against trec_eval's own code."""

from __future__ import annotations

import math

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from cascade.metrics import Gain, gains_of, hit, ndcg, recall, reciprocal_rank

_DOCUMENTS = [f"d{number}" for number in range(12)]
_CUTS = (1, 3, 5, 10, 100)


@st.composite
def _judged_rankings(draw: st.DrawFn) -> tuple[list[str], dict[str, int]]:
    """Draw a ranking without doubles, and grades for some documents, ranked or not."""
    ranked = draw(st.permutations(_DOCUMENTS))[: draw(st.integers(1, len(_DOCUMENTS)))]
    grades = draw(st.dictionaries(st.sampled_from(_DOCUMENTS), st.integers(0, 4), min_size=1))
    return ranked, grades


def _trec_eval(ranked: list[str], grades: dict[str, int], measures: set[str], level: int = 1) -> dict[str, float]:
    """Return trec_eval's measures of a ranking, given to it as scores without ties."""
    run = {"q": {document: float(len(ranked) - rank) for rank, document in enumerate(ranked)}}
    evaluator = pytrec_eval.RelevanceEvaluator({"q": grades}, measures, relevance_level=level)
    measured: dict[str, float] = evaluator.evaluate(run)["q"]
    return measured


@given(_judged_rankings())
def test_ndcg_is_trec_evals_ndcg_cut(judged: tuple[list[str], dict[str, int]]) -> None:
    """On lists without ties, nDCG at every cut equals trec_eval's."""
    ranked, grades = judged
    measured = _trec_eval(ranked, grades, {"ndcg_cut." + ",".join(map(str, _CUTS))})
    for k in _CUTS:
        assert ndcg(ranked, grades, k) == pytest.approx(measured[f"ndcg_cut_{k}"], abs=1e-12)


@given(_judged_rankings(), st.integers(1, 4))
def test_reciprocal_rank_is_trec_evals_recip_rank(judged: tuple[list[str], dict[str, int]], least: int) -> None:
    """On lists without ties, the reciprocal rank at every level of relevance equals trec_eval's."""
    ranked, grades = judged
    measured = _trec_eval(ranked, grades, {"recip_rank"}, least)
    assert reciprocal_rank(ranked, grades, least) == pytest.approx(measured["recip_rank"], abs=1e-12)


@given(_judged_rankings())
def test_exponential_gain_is_trec_evals_ndcg_of_those_gains(judged: tuple[list[str], dict[str, int]]) -> None:
    """With exponential gain, nDCG equals trec_eval's on judgements whose grades are the gains."""
    ranked, grades = judged
    gains = {document: 2 ** max(0, grade) - 1 for document, grade in grades.items()}
    measured = _trec_eval(ranked, gains, {"ndcg_cut." + ",".join(map(str, _CUTS))})
    for k in _CUTS:
        assert ndcg(ranked, grades, k, Gain.EXPONENTIAL) == pytest.approx(measured[f"ndcg_cut_{k}"], abs=1e-12)


@given(_judged_rankings(), st.integers(1, 4))
def test_recall_and_hit_are_trec_evals_recall_and_success(judged: tuple[list[str], dict[str, int]], least: int) -> None:
    """On lists without ties, recall and hit at every cut and level of relevance equal trec_eval's."""
    ranked, grades = judged
    cuts = ",".join(map(str, _CUTS))
    measured = _trec_eval(ranked, grades, {f"recall.{cuts}", f"success.{cuts}"}, least)
    for k in _CUTS:
        assert recall(ranked, grades, k, least) == pytest.approx(measured[f"recall_{k}"], abs=1e-12)
        assert hit(ranked, grades, k, least) == measured[f"success_{k}"]


def test_gains_of_grades_below_one_are_nought() -> None:
    """Unjudged (-1) and irrelevant (0) gain nothing; others gain the grade, or 2^grade - 1."""
    assert gains_of([-1, 0, 1, 3], Gain.LINEAR).tolist() == [0.0, 0.0, 1.0, 3.0]
    assert gains_of([-1, 0, 1, 3], Gain.EXPONENTIAL).tolist() == [0.0, 0.0, 1.0, 7.0]


@given(_judged_rankings(), st.integers(1, 12))
def test_ndcg_lies_between_zero_and_one(judged: tuple[list[str], dict[str, int]], k: int) -> None:
    """No ranking does better than the ideal one, and the ideal one reaches 1."""
    ranked, grades = judged
    assert 0.0 <= ndcg(ranked, grades, k) <= 1.0 + 1e-12
    ideal = sorted(_DOCUMENTS, key=lambda document: -grades.get(document, 0))
    assert ndcg(ideal, grades, k) == pytest.approx(1.0 if any(grades.values()) else 0.0)


def test_ndcg_has_linear_gain_over_all_judged_documents() -> None:
    """Grades gain as they are, and a relevant document that was not ranked costs."""
    grades = {"a": 3, "b": 1, "missing": 2}
    dcg, ideal = 1 + 3 / math.log2(3), 3 + 2 / math.log2(3) + 1 / 2
    assert ndcg(["b", "a", "unjudged"], grades, 10) == pytest.approx(dcg / ideal)


@pytest.mark.parametrize(
    ("ranked", "grades", "k"),
    [
        ([], {"a": 1}, 10),
        (["a"], {}, 10),
        (["a"], {"a": 0}, 10),
        (["a"], {"a": -1}, 10),
        (["a"], {"a": 1}, 0),
        (["b", "a"], {"a": 1}, 1),
    ],
)
def test_ndcg_is_zero_where_nothing_is_gained(ranked: list[str], grades: dict[str, int], k: int) -> None:
    """Without a relevant document, or without one above the cut, nDCG is 0."""
    assert ndcg(ranked, grades, k) == 0.0


def test_a_negative_grade_takes_nothing_away() -> None:
    """Only positive grades gain; a document marked as unjudged by -1 counts as not relevant."""
    assert ndcg(["spam", "a"], {"spam": -1, "a": 1}, 10) == pytest.approx(1 / math.log2(3))


@pytest.mark.parametrize(
    ("ranked", "least", "expected"),
    [(["a", "b", "c"], 1, 0.5), (["a", "b", "c"], 2, 1 / 3), (["a"], 1, 0.0), ([], 1, 0.0), (["b"], 3, 0.0)],
)
def test_reciprocal_rank_is_that_of_the_first_good_enough_document(
    ranked: list[str], least: int, expected: float
) -> None:
    """The first document of at least the grade asked for counts; without one it is 0."""
    assert reciprocal_rank(ranked, {"b": 1, "c": 2}, least) == pytest.approx(expected)


@pytest.mark.parametrize(("k", "expected"), [(None, 0.5), (2, 0.5), (1, 0.0), (0, 0.0)])
def test_reciprocal_rank_at_k_counts_the_first_k_only(k: int | None, expected: float) -> None:
    """Behind the cut a relevant document is not seen; without a cut the whole list counts."""
    assert reciprocal_rank(["a", "b"], {"b": 1}, k=k) == expected


def test_recall_and_hit_of_a_query_without_relevant_documents_are_zero() -> None:
    """There is nothing to find."""
    assert recall(["a"], {"a": 0}, 10) == 0.0
    assert hit(["a"], {"a": 0}, 10) == 0.0
