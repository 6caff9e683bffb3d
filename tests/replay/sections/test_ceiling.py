"""How many relevant documents the small order's head holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cascade.metrics import Gain
from cascade.replay.intervals import resampled
from cascade.replay.queries import replayed
from cascade.replay.sections import ceiling
from tests.replay.made import ROLES, made_queries, made_query, made_table

_NAN = float("nan")


def test_recall_is_of_all_judged_relevant_documents() -> None:
    """Of four that are relevant one is no candidate, one was not scored, and two stand first and fourth."""
    query = made_query([5.0, 1.0, 4.0, 3.0, _NAN], [0.0] * 5, [1.0, 1.0, 0.0, 0.0, 1.0])
    query = replace(query, judgement=replace(query.judgement, total=4))
    told = ceiling.told(ceiling.columns([query], 5), 5, resampled(1, 1000, 0))
    assert told["recall_at"] == [[1, 0.25], [3, 0.25], [5, 0.75]]
    assert told["candidates"] == 0.75


def test_every_recall_has_its_interval() -> None:
    """Recall rises along the heads, which end with the longest list."""
    queries = made_queries(40, 20)
    told = ceiling.told(ceiling.columns(queries, 20), 20, resampled(40, 1000, 0))
    heads, recalls = zip(*told["recall_at"], strict=True)
    assert heads == (1, 3, 5, 10, 20)
    assert list(recalls) == sorted(recalls)
    assert recalls[-1] == told["candidates"] == 1.0
    for recall, (low, high) in zip(recalls, told["intervals"]["recall_at"], strict=True):
        assert low <= recall <= high


def test_a_query_without_a_relevant_document_counts_as_nothing_found() -> None:
    """It stays in the mean."""
    found, none = made_query([1.0], [1.0], [1.0]), made_query([1.0], [1.0], [0.0])
    assert ceiling.told(ceiling.columns([found, none], 1), 1, resampled(2, 1000, 0))["recall_at"] == [[1, 0.5]]


def test_without_judgements_there_is_no_ceiling() -> None:
    """Nothing is known to be relevant."""
    queries = replayed([made_table(4, rel=None)], ROLES, 5, Gain.LINEAR).queries
    told = ceiling.told(ceiling.columns(queries, 20), 20, resampled(4, 1000, 0))
    assert (told["recall_at"], told["candidates"]) == ([], None)
    assert told["reasons"] == {"candidates": pytest.approx("the table has no judgements")}
