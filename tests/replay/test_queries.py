"""Queries of a table as a replay sees them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.replay.columns import IntArray
from cascade.replay.queries import Roles, replayed
from cascade.replay.table import ScoreTable
from tests.replay.made import ROLES, made_table

_TABLE = ScoreTable(
    ("q1", "q2"),
    np.array([0, 3, 5]),
    ("a", "b", "c", "a", "b"),
    {
        "bm25": np.array([1.0, 3.0, 2.0, 5.0, 4.0]),
        "s": np.array([0.1, 0.2, 0.3, 0.4, 0.5]),
        "l": np.array([7.0, 8.0, 9.0, 2.0, 1.0]),
    },
    rel=np.array([2, -1, 1, 0, 0]),
    attributes={"source": ("x", "x", "y", "z", "z"), "tokens": (1, 2, 3, 4, 5)},
)
_ROLES = Roles(("bm25",), "s", "l")


def test_arrays_stand_in_first_stage_order() -> None:
    """Scores, channels, tokens and gains of a query are ordered by its fused first stage."""
    query = replayed([_TABLE], _ROLES, 10, Gain.EXPONENTIAL).queries[0]
    assert query.small.tolist() == [0.2, 0.3, 0.1]
    assert query.large.tolist() == [8.0, 9.0, 7.0]
    assert query.channels["bm25"].tolist() == [3.0, 2.0, 1.0]
    assert query.tokens is not None
    assert query.tokens.tolist() == [2, 3, 1]
    assert query.judgement.gains.tolist() == [0.0, 1.0, 3.0]
    assert query.judgement.judged.tolist() == [False, True, True]
    assert (query.pairs, query.slices) == (3, {"source": "mixed"})


def test_ranks_of_the_first_stage_win_over_fusion() -> None:
    """Where the table knows the order that was served, that is the order."""
    table = replace(_TABLE, rank_first=np.array([3, 2, 1, 1, 2]))
    assert replayed([table], _ROLES, 10, Gain.LINEAR).queries[0].small.tolist() == [0.3, 0.2, 0.1]


def test_beyond_depth_nothing_is_scored() -> None:
    """Candidates behind the depth keep their place and have no scores of a reranker."""
    query = replayed([_TABLE], replace(_ROLES, depth=2), 10, Gain.LINEAR).queries[0]
    assert query.pairs == 2
    assert np.isnan(query.small).tolist() == np.isnan(query.large).tolist() == [False, False, True]
    assert np.isfinite(query.channels["bm25"]).all()


def test_the_ideal_is_over_the_table_where_nothing_more_is_known() -> None:
    """The ideal order is that of the table's own positive grades, those beyond depth included."""
    first, second = replayed([_TABLE], replace(_ROLES, depth=1), 1, Gain.LINEAR).queries
    assert (first.judgement.ideal, first.judgement.total) == (2.0, 2)
    assert (second.judgement.ideal, second.judgement.total) == (0.0, 0)


def test_the_ideal_is_over_all_judged_documents_where_they_are_known() -> None:
    """A relevant document that the first stage missed counts against every policy."""
    table = replace(_TABLE, grades=((3, 2, 1), ()))
    judgement = replayed([table], _ROLES, 1, Gain.LINEAR).queries[0].judgement
    assert (judgement.ideal, judgement.total) == (3.0, 3)


@pytest.mark.parametrize("rel", [None, np.full(5, -1)])
def test_without_judgements_the_large_order_judges(rel: IntArray | None) -> None:
    """The silver gain is 1 / rank of the large order, and nothing counts as relevant."""
    found = replayed([replace(_TABLE, rel=rel)], _ROLES, 10, Gain.EXPONENTIAL)
    judgement = found.queries[0].judgement
    assert found.silver
    assert judgement.gains.tolist() == [1 / 2, 1.0, 1 / 3]
    assert judgement.ideal == pytest.approx(1.0 + 0.5 / np.log2(3) + 1 / 3 / 2)
    assert not judgement.relevant.any()


def test_queries_that_a_reranker_never_scored_are_left_out_and_counted() -> None:
    """A query without a score of one of the two cannot be replayed; one with some can."""
    small = np.array([np.nan, np.nan, 0.3, np.nan, np.nan])
    found = replayed([replace(_TABLE, scores={**_TABLE.scores, "s": small})], _ROLES, 10, Gain.LINEAR)
    assert (len(found.queries), found.dropped) == (1, 1)


def test_tables_are_read_one_after_another() -> None:
    """The queries of several tables are one evaluation."""
    assert len(replayed([made_table(3), made_table(4, seed=2)], ROLES, 5, Gain.LINEAR).queries) == 7


def test_judged_and_unjudged_tables_are_not_mixed() -> None:
    """A mean over judgements and the large order would mean nothing."""
    with pytest.raises(ConfigError, match="some of the tables have judgements"):
        replayed([made_table(), made_table(seed=2, rel=None)], ROLES, 5, Gain.LINEAR)


def test_a_table_without_scores_of_a_reranker_is_refused() -> None:
    """Nothing is left to evaluate."""
    table = made_table()
    empty = replace(table, scores={**table.scores, "large": np.full(800, np.nan)})
    with pytest.raises(ConfigError, match="no query has scores of both small and large"):
        replayed([empty], ROLES, 5, Gain.LINEAR)


def test_a_missing_column_is_told_by_name() -> None:
    """The policy needs what the table lacks."""
    with pytest.raises(ConfigError, match="no column huge; scorers of this table are bm25, dense, large, small"):
        replayed([made_table()], replace(ROLES, large="huge"), 5, Gain.LINEAR)


@pytest.mark.parametrize("roles", [Roles(("bm25",), "l", "l"), Roles(("bm25", "l"), "s", "l")])
def test_the_large_column_has_no_other_role(roles: Roles) -> None:
    """What is to be estimated may not be what it is estimated from."""
    with pytest.raises(ConfigError, match="column l is the large reranker"):
        replayed([_TABLE], roles, 10, Gain.LINEAR)
