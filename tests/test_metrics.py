"""Ranking metrics, against trec_eval's own code."""

from __future__ import annotations

import math

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from cascade.metrics import ndcg, reciprocal_rank

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
