"""How often an answer reads a relevant document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import resampled
from cascade.replay.points import Point, at_setting
from cascade.replay.queries import ReplayedQuery, replayed
from cascade.replay.sections import support
from cascade.replay.sweep import Metric
from tests.replay.made import ROLES, made_queries, made_table
from tests.replay.sections.asked import asked, named, replay

_QUESTION = asked(k=2, support_tokens=100)


def _query(tokens: list[float]) -> ReplayedQuery:
    """Return a query whose third candidate is relevant, second by the small order and first by the large one."""
    query = named([3.0, 1.0, 2.0], [2.0, 1.0, 3.0], [0.0, 0.0, 1.0])
    return replace(query, tokens=np.array(tokens))


def _static(queries: tuple[ReplayedQuery, ...], odds: FloatArray | None = None) -> Point:
    sweep = baselines.static(queries, 2, Metric.NDCG, baselines.small_ranks(queries))
    return at_setting(sweep, 0, "") if odds is None else Point(sweep, odds, "")


def test_each_policy_is_supported_within_k_and_within_the_budget() -> None:
    """60 tokens each leave room for one document: the small order has the relevant one second."""
    query = _query([60.0, 60.0, 60.0])
    told = support.told(
        support.columns([query], replay(query, "none", 3, _QUESTION), _QUESTION, 3),
        _static((query,)),
        _QUESTION,
        resampled(1, 1000, 0),
    )
    assert told is not None
    assert told["policies"] == {
        "first-stage": {"within_k": 0.0, "within_tokens": 0.0},
        "small": {"within_k": 1.0, "within_tokens": 0.0},
        "large": {"within_k": 1.0, "within_tokens": 1.0},
        "static": {"within_k": 1.0, "within_tokens": 1.0},
        "policy": {"within_k": 1.0, "within_tokens": 0.0},
    }
    assert (told["k"], told["tokens"]) == (2, 100)


def test_a_document_is_within_the_budget_to_its_last_token() -> None:
    """60 + 40 is as many as there are, 60 + 41 one too many."""
    for last, within in ((40.0, 1.0), (41.0, 0.0)):
        query = _query([60.0, 9.0, last])
        columns = support.columns([query], None, _QUESTION, 3)
        told = support.told(columns, _static((query,)), _QUESTION, resampled(1, 1000, 0))
        assert told is not None
        assert told["policies"]["small"]["within_tokens"] == within


def test_static_is_expected_over_its_coin() -> None:
    """With even odds of sending all and sending none it is supported half of the time."""
    query = _query([60.0, 60.0, 60.0])
    point = _static((query,), np.array([0.5, 0.0, 0.0, 0.5]))
    told = support.told(support.columns([query], None, _QUESTION, 3), point, _QUESTION, resampled(1, 1000, 0))
    assert told is not None
    assert told["policies"]["static"] == {"within_k": 1.0, "within_tokens": 0.5}


def test_within_k_is_the_hit_of_the_report() -> None:
    """On made queries both say the same."""
    queries = made_queries()
    question = asked(support_tokens=10**6)
    columns = support.columns(queries, None, question, 20)
    hit = baselines.small(queries, 5, Metric.HIT).quality[0]
    assert columns["support.small"][:, 0].tolist() == hit.astype(bool).tolist()
    assert columns["support.small"][:, 1].all()


def test_a_query_without_a_relevant_document_is_not_supported() -> None:
    """Nothing is the first relevant one."""
    query = replace(named([1.0], [1.0], [0.0]), tokens=np.array([1.0]))
    assert not support.columns([query], None, _QUESTION, 1)["support.large"].any()


def test_unasked_there_is_none() -> None:
    """Neither columns nor a section."""
    queries = made_queries(2)
    assert support.columns(queries, None, asked(), 20) == {}
    assert support.told({}, _static(queries), asked(), resampled(2, 1000, 0)) is None


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        (named([1.0], [1.0], [1.0]), "no column tokens"),
        (replace(named([1.0], [1.0], [1.0]), tokens=np.array([np.nan])), "column tokens: query q has candidates"),
        (replayed([made_table(1, rel=None)], ROLES, 5, Gain.LINEAR).queries[0], "needs judgements"),
    ],
)
def test_what_cannot_be_told_is_refused(query: ReplayedQuery, rule: str) -> None:
    """Naming the option and the column."""
    with pytest.raises(ConfigError, match=f"^--support-tokens: .*{rule}"):
        support.columns([query], None, _QUESTION, query.pairs)
