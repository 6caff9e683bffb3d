"""Tables of different queries as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.replay.joined import joined
from cascade.replay.table import ScoreTable, data_sha256
from tests.replay.made import made_table

_COLUMNS = ["bm25", "dense", "small", "large", "rel"]


def test_parts_make_the_whole_again() -> None:
    """In whatever order the parts come, queries are sorted and every column is as it was."""
    whole = made_table(10, 6)
    parts = [whole.take([2, 5, 7]), whole.take([0, 1, 9]), whole.take([3, 4, 6, 8])]
    again = joined(parts)
    assert again.query_ids == whole.query_ids
    assert again.doc_ids == whole.doc_ids
    assert again.attributes == whole.attributes
    assert again.offsets.tolist() == whole.offsets.tolist()
    assert data_sha256(again, _COLUMNS) == data_sha256(whole, _COLUMNS)


def test_one_table_is_itself() -> None:
    """Nothing is copied."""
    table = made_table(3)
    assert joined([table]) is table


def test_lists_may_differ_in_length() -> None:
    """Each query keeps its own candidates."""
    one, other = made_table(2, 3, seed=1), made_table(2, 5, seed=2)
    both = joined([other, one])
    assert np.diff(both.offsets).tolist() == [3, 3, 5, 5]
    assert both.scores["large"][both.rows(2)].tolist() == other.scores["large"][other.rows(0)].tolist()


def test_columns_that_every_table_has_are_kept() -> None:
    """A scorer or an attribute that one of them lacks is not there in the whole."""
    one, other = made_table(2, seed=1), made_table(2, seed=2)
    fewer = replace(
        other,
        scores={name: other.scores[name] for name in ("small", "large")},
        attributes={"tokens": other.attributes["tokens"]},
    )
    both = joined([one, fewer])
    assert set(both.scores) == {"small", "large"}
    assert set(both.attributes) == {"tokens"}


def test_first_stage_ranks_are_kept() -> None:
    """Where all tables have them."""
    tables = [replace(made_table(2, 4, seed=seed), rank_first=np.tile([4, 3, 2, 1], 2)) for seed in (2, 1)]
    both = joined(tables)
    assert both.rank_first is not None
    assert both.rank_first.tolist() == [4, 3, 2, 1] * 4


def _graded(table: ScoreTable) -> ScoreTable:
    return replace(table, grades=((3, 1),) * len(table.query_ids))


def test_ideal_orders_are_kept_and_made_where_there_are_none() -> None:
    """A table without grades of all judged documents has those of its candidates."""
    one, other = _graded(made_table(2, 6, seed=2)), made_table(1, 6, seed=1)
    both = joined([one, other])
    assert both.grades is not None
    assert other.rel is not None
    assert both.grades[0] == tuple(sorted((int(grade) for grade in other.rel if grade > 0), reverse=True))
    assert both.grades[1:] == ((3, 1), (3, 1))
    assert joined([made_table(1, seed=1), made_table(1, seed=2)]).grades is None
    unjudged = [replace(table, rel=None) for table in (one, other)]
    assert joined(unjudged).grades == ((), (3, 1), (3, 1))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rel": None}, "only some of the tables have a column rel; use them apart"),
        ({"rank_first": np.tile(np.arange(1, 21), 2)}, "only some of the tables have a column rank_first"),
        ({"query_ids": ("q1-000", "q2-001")}, "query q1-000 is in two of the tables"),
    ],
)
def test_tables_that_do_not_go_together_are_refused(change: dict[str, object], told: str) -> None:
    """Half judged, half ranked, or of the same queries."""
    other = replace(made_table(2, seed=2), **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=told):
        joined([made_table(2, seed=1), other])


def test_a_scorer_has_to_be_the_same_in_all_tables() -> None:
    """What the tables say of it must not differ; what only one says holds."""
    one, other, third = (made_table(1, seed=seed) for seed in (1, 2, 3))
    told = {"small": {"fingerprint": {"model": "m"}}}
    tables = [replace(one, conditions={"scorers": told}), replace(other, conditions={"scorers": told}), third]
    both = joined(tables)
    assert both.conditions["scorers"] == told
    assert both.conditions["joined"] == [{"scorers": told}, {"scorers": told}, {}]
    differs = replace(third, conditions={"scorers": {"small": {"fingerprint": {"model": "other"}}}})
    with pytest.raises(ConfigError, match="column small: the tables were scored by different stages"):
        joined([*tables[:2], differs])


def test_the_weights_of_a_scorer_have_to_be_the_same_where_they_are_known() -> None:
    """Files that were exchanged under the same name make another scorer; what one table does not tell another may."""

    def told(seed: int, digest: str | None) -> ScoreTable:
        observed = {"small": None if digest is None else {"model": "m", "weights_sha256": digest}}
        return replace(made_table(1, seed=seed), conditions={"observed": observed})

    both = joined([told(1, None), told(2, "1" * 64), made_table(1, seed=3)])
    assert both.conditions["observed"] == {"small": {"weights_sha256": "1" * 64}}
    with pytest.raises(ConfigError, match="column small: the tables were scored by a stage with different weights"):
        joined([both, told(4, "2" * 64)])
