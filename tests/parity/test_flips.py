"""Flips by margin."""

from __future__ import annotations

import numpy as np

from cascade.parity.alignment import misaligned
from cascade.parity.flips import flips, large_flips
from tests.parity.arrange import paired_list


def test_a_flip_counts_in_the_bucket_of_its_margin() -> None:
    """Scores 0, 0.02 and 10: the small margin is turned round, the large ones are kept."""
    found = flips([paired_list([10.0, 0.02, 0.0], [10.0, 0.0, 0.01])])
    told = [
        (bucket.low_sd, bucket.high_sd, bucket.comparisons, bucket.flipped) for bucket in found if bucket.comparisons
    ]
    assert told == [(0.0, 0.01, 1, 1), (1.0, None, 2, 0)]
    assert large_flips(found) == 0.0
    sd = float(np.std([10.0, 0.02, 0.0]))
    assert (found[-1].low, found[-1].high) == (sd, None)


def test_a_turned_order_is_all_flips_at_large_margins() -> None:
    """What no small noise explains."""
    assert large_flips(flips([paired_list([2.0, 0.0], [0.0, 2.0])])) == 1.0


def test_a_margin_of_half_a_deviation_is_large() -> None:
    """Of 0, 1, 2, 3 neighbours lie 0.89 deviations apart: one of six comparisons is turned round."""
    found = flips([paired_list([3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 0.0, 1.0])])
    assert [(bucket.low_sd, bucket.flipped) for bucket in found if bucket.flipped] == [(0.5, 1)]
    assert large_flips(found) == 1 / 6


def test_ties_are_told_apart_from_flips_and_equal_reference_scores_are_not_compared() -> None:
    """CAND ties two that REF keeps apart; REF ties two others."""
    found = flips([paired_list([1.0, 0.0, 0.0], [5.0, 5.0, 1.0])])
    assert sum(bucket.comparisons for bucket in found) == 2
    assert (sum(bucket.flipped for bucket in found), sum(bucket.tied for bucket in found)) == (0, 1)


def test_constant_reference_scores_have_no_margin() -> None:
    """And no share of flips."""
    assert flips([paired_list([1.0, 1.0], [1.0, 2.0])]) == []
    assert flips([]) == []
    assert large_flips([]) is None


def test_the_right_numbers_at_the_wrong_documents_are_misaligned() -> None:
    """Half of the queries are answered in order of score and not of documents; noise and equal scores are not."""
    random = np.random.default_rng(0)
    right = random.normal(0.0, 3.0, (8, 20))
    lists = [paired_list(row, np.sort(row)[::-1] + 1e-4) for row in right[:4]]
    lists += [paired_list(row, row + random.normal(0.0, 1.0, 20)) for row in right[4:6]]
    lists += [paired_list(row, row + 0.001) for row in right[6:]]
    assert misaligned(lists) == 0.5
    assert misaligned([]) == 0.0
