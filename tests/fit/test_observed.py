"""What queries had at each depth, and what a table tells of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.fit.observed import DIFFICULTY, large_quality, observe, told_signals
from cascade.metrics import Gain
from cascade.replay.queries import ReplayedQuery, Roles, replayed
from cascade.replay.table import ScoreTable
from cascade.signals import Inputs, compute, resolve
from cascade.types import QueryClass
from tests.fit.planted import ROLES, planted_table


def _queries(table: ScoreTable, roles: Roles = ROLES) -> tuple[ReplayedQuery, ...]:
    return replayed([table], roles, 10, Gain.LINEAR).queries


def _eleventh(**fields: object) -> ScoreTable:
    """Return one query of which the first stage ranks the one relevant candidate eleventh, both rerankers first."""
    rel = np.zeros(30, dtype=np.int64)
    rel[10] = 1
    worth = rel.astype(np.float64)
    scores = {"a": np.arange(30, 0, -1, dtype=np.float64), "small": worth, "large": worth}
    table = ScoreTable(("q",), np.array([0, 30]), tuple(map(str, range(30))), scores, rel=rel)
    return replace(table, **fields)  # type: ignore[arg-type]


_ONE = Roles(("a",), "small", "large")


def test_quality_is_of_the_small_order_within_depth() -> None:
    """From depth 11 on the relevant one is first, and before it no gain at 10; so with the large stage's."""
    queries = _queries(_eleventh(), _ONE)
    seen = observe(queries, 10, (10, 11, 100))
    assert seen.quality.tolist() == [[0.0, 1.0, 1.0]]
    assert large_quality(queries, 10, (10, 11, 100)).tolist() == [[0.0, 1.0, 1.0]]
    assert seen.classes == (None,)
    assert seen.cost.tolist() == [[10.0, 11.0, 30.0]]


def test_a_candidate_without_a_small_score_stays_behind_those_with_one() -> None:
    """As it is served."""
    small = np.full(30, np.nan)
    small[10] = -5.0
    table = _eleventh()
    table = replace(table, scores={**table.scores, "small": small})
    assert observe(_queries(table, _ONE), 10, (10, 20)).quality.tolist() == [[0.0, 1.0]]


def test_without_judgements_the_large_order_judges() -> None:
    """Reciprocal ranks of it: an order that is the large one's is perfect."""
    worth = np.random.default_rng(0).normal(size=30)
    table = _eleventh(rel=None, scores={"a": np.arange(30, 0, -1, dtype=np.float64), "small": worth, "large": worth})
    seen = observe(_queries(table, _ONE), 10, (10, 30))
    assert seen.quality[0, 0] < 1.0
    assert seen.quality[0, 1] == pytest.approx(1.0)


def test_queries_that_no_order_helps_are_left_out() -> None:
    """Nothing relevant is known of them."""
    rel = np.zeros(30, dtype=np.int64)
    seen = observe(_queries(_eleventh(rel=rel), _ONE), 10, (10, 30))
    assert seen.quality.shape == (0, 2)
    assert large_quality(_queries(_eleventh(rel=rel), _ONE), 10, (10, 30)).shape == (0, 2)


def test_signals_are_those_of_scores_and_of_the_columns_there_are() -> None:
    """In name order of the channels, every one of them known, none that needs a text or is fitted."""
    plain = planted_table(3, 24)
    names = told_signals(_queries(plain, Roles(("dense", "bm25"), "small", "large")))
    assert {"bm25.gap_tail", "dense.entropy", "kendall.bm25.dense", "channels.separation"} <= set(names)
    assert not {"bm25.wig", "query.tokens", "query.identifiers", "head.duplicate", DIFFICULTY} & set(names)
    assert all(resolve(name) for name in names)
    told = replace(plain, attributes={**plain.attributes, "q_tokens": (4,) * 72, "q_identifiers": (1,) * 72})
    assert told_signals(_queries(told)) == (*names, "query.tokens", "query.identifiers")
    seen = observe(_queries(told), 10, (10, 20))
    assert seen.signals[:, -2:].tolist() == [[4.0, 1.0]] * 3
    assert seen.classes == (QueryClass.IDENTIFIER, QueryClass.OTHER, QueryClass.IDENTIFIER)


def test_signals_are_computed_as_they_are_when_serving() -> None:
    """Of all candidates in first-stage order, whatever the depth."""
    queries = _queries(planted_table(2, 24))
    seen = observe(queries, 10, (10, 20))
    expected = compute(seen.names, Inputs(channels=dict(queries[1].channels)))
    assert dict(zip(seen.names, seen.signals[1].tolist(), strict=True)) == pytest.approx(expected.values, nan_ok=True)


@pytest.mark.parametrize(
    ("table", "roles", "message"),
    [
        (_eleventh(attributes={"q_class": ("hard",) * 30}), _ONE, "column q_class: query classes are identifier, "),
        (
            _eleventh(scores={name: np.arange(30, dtype=np.float64) for name in ("b m", "small", "large")}),
            Roles(("b m",), "small", "large"),
            "column b m: no signal can read a channel of this name",
        ),
    ],
)
def test_what_no_rule_could_read_is_refused(table: ScoreTable, roles: Roles, message: str) -> None:
    """A class that there is not, and a channel that no signal can name."""
    with pytest.raises(ConfigError, match=message):
        observe(_queries(table, roles), 10, (10, 30))
