"""What a pair costs a stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.capacity.distribution import Distribution
from cascade.capacity.pair_work import PairWork, Reading, pair_work
from cascade.capacity.traffic import OverLength
from cascade.errors import ConfigError

_MIXED = Distribution.weighted({100: 2, 300: 1, 1000: 1}.items())


def test_a_long_pair_is_cut() -> None:
    """Of 1,000 tokens 512 are read, and the share of such pairs is told."""
    work = pair_work(_MIXED, None, Reading(512, OverLength.TRUNCATE), "small")
    assert work == PairWork(1.0, 0.5 * 100 + 0.25 * 300 + 0.25 * 512, 253.0, 0.25)


def test_windows_repeat_the_query() -> None:
    """A pair of 1,000 with a query of 16 (20 with special tokens) is 980 of a document: 492, and 488 in the second."""
    work = pair_work(Distribution.constant(1000), 16.0, Reading(512, OverLength.WINDOWS), "small")
    assert (work.sequences, work.tokens) == (2.0, 512 + 20 + 488)


def test_a_document_that_fills_its_windows_needs_no_further_one() -> None:
    """Two windows of 492 hold 984 tokens; one more begins a third."""
    reading = Reading(512, OverLength.WINDOWS)
    assert pair_work(Distribution.constant(20 + 984), 16.0, reading, "small").sequences == 2.0
    assert pair_work(Distribution.constant(20 + 985), 16.0, reading, "small").sequences == 3.0


def test_a_pair_within_its_length_is_one_window() -> None:
    """Windows cost nothing where they are not needed."""
    for over_length in OverLength:
        work = pair_work(Distribution.constant(512), 16.0, Reading(512, over_length), "small")
        assert work == PairWork(1.0, 512.0, 512.0, 0.0)


def test_buckets_pad_to_the_next_length() -> None:
    """100 becomes 128, 300 becomes 512; what is beyond the last is as long as it is."""
    work = pair_work(_MIXED, None, Reading(2048, OverLength.TRUNCATE, buckets=(64, 128, 512)), "small")
    assert work.tokens == 0.5 * 100 + 0.25 * 300 + 0.25 * 1000
    assert work.computed == 0.5 * 128 + 0.25 * 512 + 0.25 * 1000


def test_a_factor_pads_everything() -> None:
    """Computed tokens grow, read ones do not."""
    work = pair_work(_MIXED, None, Reading(2048, OverLength.TRUNCATE, padding=1.5), "small")
    assert (work.tokens, work.computed) == (375.0, 562.5)


def test_windows_need_the_query() -> None:
    """Its length is never made up."""
    with pytest.raises(ConfigError, match="large splits long pairs into windows, and query_tokens is not told"):
        pair_work(_MIXED, None, Reading(512, OverLength.WINDOWS), "large")


def test_a_query_that_fills_the_window_is_refused() -> None:
    """There would be no end of windows."""
    with pytest.raises(ConfigError, match="leaves no room in windows of 64 tokens"):
        pair_work(_MIXED, 60.0, Reading(64, OverLength.WINDOWS), "large")


@given(st.integers(5, 5000), st.integers(1, 40), st.sampled_from(OverLength))
def test_longer_pairs_never_cost_less(length: int, query: int, over_length: OverLength) -> None:
    """In sequences, and in tokens computed; no sequence is longer than the stage reads."""
    reading = Reading(128, over_length, buckets=(32, 64, 128))
    shorter, longer = (
        pair_work(Distribution.constant(each), float(query), reading, "small") for each in (length, length + 1)
    )
    assert longer.sequences >= shorter.sequences
    assert longer.computed >= shorter.computed
    assert shorter.tokens <= shorter.computed <= 128 * shorter.sequences
