"""Which query fits, which chooses, which certifies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.fit.certify.splits import Shares, betting_order, part_of, parted
from cascade.replay.queries import query_digest
from cascade.replay.same_text import text_digest
from cascade.replay.table import ScoreTable
from tests.fit.planted import planted_table

_SHARES = Shares(0.4, 0.2, 0.4)


def _with_texts(texts: list[str]) -> ScoreTable:
    table = planted_table(len(texts), 2)
    keys = tuple(text_digest(text) for text in texts for _ in range(2))
    return replace(table, attributes={"q_text_sha256": keys})


def test_every_query_is_in_one_part() -> None:
    """In about the shares that were asked for: 400 queries, within four standard deviations of the binomial."""
    table = planted_table(400, 2)
    parts = parted(table, _SHARES, 0)
    names = [set(part.query_ids) for part in (parts.fit, parts.choose, parts.certify)]
    assert set.union(*names) == set(table.query_ids)
    assert sum(map(len, names)) == 400
    assert [len(part) for part in names] == pytest.approx([160, 80, 160], abs=40)
    assert (parts.by, parts.trained, parts.repeated) == ("query_id", 0, 0)


def test_a_part_depends_on_the_query_and_the_seed_alone() -> None:
    """More queries move none, and another seed moves many."""
    few, many = (parted(planted_table(count, 2), _SHARES, 3) for count in (100, 300))
    assert set(few.certify.query_ids) <= set(many.certify.query_ids)
    other = parted(planted_table(300, 2), _SHARES, 4)
    both = set(many.certify.query_ids) & set(other.certify.query_ids)
    assert len(both) < 0.7 * len(many.certify.query_ids)


def test_queries_of_one_text_are_one() -> None:
    """However they are written: width, case and white space do not tell them apart; the first by id stays."""
    parts = parted(_with_texts(["Ａbc  d", "abc D", "abc e"]), Shares(0.0, 0.5, 0.5), 0)
    assert sorted([*parts.choose.query_ids, *parts.certify.query_ids]) == ["q1-000", "q1-002"]
    assert (parts.by, parts.repeated) == ("q_text_sha256", 1)


def test_what_trained_a_calibration_is_left_out_and_so_is_its_text() -> None:
    """Also under another id."""
    parts = parted(_with_texts(["one", "two", "ONE", "three"]), Shares(0.0, 0.5, 0.5), 0, {query_digest("q1-000")})
    assert sorted([*parts.choose.query_ids, *parts.certify.query_ids]) == ["q1-001", "q1-003"]
    assert (parts.trained, parts.repeated) == (2, 0)


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5, 0.5), (0.6, 0.4, 0.0), (0.0, 0.0, 1.0), (-0.1, 0.6, 0.5), (np.nan, 0.5, 0.5)]
)
def test_shares_that_are_none_are_refused(shares: tuple[float, float, float]) -> None:
    """They sum to 1, some certify, and some others choose."""
    with pytest.raises(ConfigError, match="--shares: "):
        Shares(*shares)


def test_losses_are_bet_on_in_an_order_of_the_ids() -> None:
    """The same ids in another order are bet on in the same order; another seed gives another."""
    names = [f"q{number}" for number in range(50)]
    order = [names[place] for place in betting_order(names, 1)]
    assert sorted(order) == sorted(names)
    assert order != names
    assert [names[::-1][place] for place in betting_order(names[::-1], 1)] == order
    assert [names[place] for place in betting_order(names, 2)] != order


def test_a_part_is_told_by_the_digest_of_its_ids() -> None:
    """SHA-256 of the ids, one a line."""
    told = part_of(["a", "b"])
    assert told.queries == 2
    assert told.sha256 == "7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78"
