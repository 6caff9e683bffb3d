"""What a difference costs."""

from __future__ import annotations

import pytest

from cascade.parity.quality import quality
from tests.parity.arrange import paired_list


def test_the_loss_is_paired_with_its_interval() -> None:
    """Of 20 queries CAND puts the one relevant document second in five."""
    right = [paired_list([2, 1, 0], [2, 1, 0], f"r{n}", grades=(1, 0, -1), ideal=(1,)) for n in range(15)]
    wrong = [paired_list([2, 1, 0], [1, 2, 0], f"w{n}", grades=(1, 0, -1), ideal=(1,)) for n in range(5)]
    found = quality([*right, *wrong], k=10, resamples=2000, seed=0)
    assert found is not None
    assert (found.ndcg_ref, found.mrr_ref, found.queries) == (1.0, 1.0, 20)
    assert found.ndcg_delta.value == pytest.approx(-(1 - 0.63093) / 4, abs=1e-5)
    assert found.mrr_delta.value == pytest.approx(-0.125)
    assert found.ndcg_delta.interval is not None
    low, high = found.ndcg_delta.interval
    assert low is not None
    assert high is not None
    assert -0.18 < low < -0.11 < -0.06 < high <= 0.0


def test_queries_without_judgements_do_not_count_and_those_without_relevance_do() -> None:
    """The first are not in the mean; the others are, with nought, and are counted."""
    lists = [
        paired_list([2, 1], [2, 1], "a", grades=(1, 0), ideal=(1,)),
        paired_list([2, 1], [2, 1], "b", grades=(0, 0), ideal=()),
        paired_list([2, 1], [1, 2], "c"),
    ]
    found = quality(lists, k=10, resamples=1000, seed=0)
    assert found is not None
    assert (found.queries, found.without_relevant, found.ndcg_ref) == (2, 1, 0.5)
    assert found.ndcg_delta.reason == "fewer than 10 queries"
    assert quality(lists[2:], k=10, resamples=1000, seed=0) is None


def test_ties_keep_first_stage_order() -> None:
    """Saturated scores give back the retriever's order, which costs what it costs."""
    found = quality([paired_list([1, 2], [1, 1], grades=(0, 1), ideal=(1,))], k=10, resamples=1000, seed=0)
    assert found is not None
    assert (found.mrr_ref, found.mrr_cand) == (1.0, 0.5)
