"""How many queries a claim needs."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.statistics.power import (
    claim,
    detectable_loss,
    least_queries,
    non_inferiority_p,
    non_inferiority_queries,
    queries_needed,
)


def test_an_asymptotic_test_needs_657_queries_for_one_percent() -> None:
    """(1.2816 + 1.2816)^2 x .1^2 / .01^2 = 656.9; none shows what is not so."""
    assert non_inferiority_queries(0.1, 0.0, 0.01, 0.1) == 657
    assert non_inferiority_queries(0.1, 0.005, 0.01, 0.1) == 2628
    assert non_inferiority_queries(0.0, 0.0, 0.01, 0.1) == 1
    assert non_inferiority_queries(0.1, 0.01, 0.01, 0.1) is None


def test_fifty_topics_detect_five_percent() -> None:
    """With a spread of .15, 2.5631 x .15 / sqrt(50); the two formulas turn into each other."""
    assert detectable_loss(50, 0.15, 0.1) == pytest.approx(0.05437, abs=1e-5)
    assert non_inferiority_queries(0.15, 0.0, detectable_loss(50, 0.15, 0.1) * (1 + 1e-12), 0.1) == 50


def test_the_power_that_is_promised_is_had() -> None:
    """With 657 queries of spread .1 and no loss, about nine tenths of 300 experiments show less than .01."""
    losses = np.random.default_rng(8).normal(0.0, 0.1, size=(300, 657))
    found = np.mean([non_inferiority_p(each, 0.01, flips=500, seed=1) <= 0.1 for each in losses])
    assert found == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 300))


def test_at_the_margin_an_asymptotic_test_errs_as_often_as_it_says() -> None:
    """Losses of mean epsilon and symmetric spread: at most .1 + 3 se of 400 experiments."""
    losses = np.random.default_rng(9).normal(0.01, 0.1, size=(400, 100))
    found = np.mean([non_inferiority_p(each, 0.01, flips=500, seed=1) <= 0.1 for each in losses])
    assert found <= 0.1 + 3 * np.sqrt(0.09 / 400)


def test_rare_large_losses_deceive_an_asymptotic_test() -> None:
    """One query in a hundred loses everything: 100 of them show none in a third of experiments, and p is tiny."""
    losses = (np.random.default_rng(10).random((200, 100)) < 0.01).astype(float)
    found = np.mean([non_inferiority_p(each, 0.01, flips=500) <= 0.1 for each in losses])
    assert found > 0.3


@pytest.mark.parametrize(("epsilon", "least"), [(0.005, 460), (0.01, 230), (0.02, 114)])
def test_the_least_number_is_the_first_at_which_a_bad_policy_is_caught(epsilon: float, least: int) -> None:
    """(1 - epsilon)^n is at most delta from there on: about ln(1/delta)/epsilon."""
    assert least_queries(epsilon, 0.1) == least
    assert (1 - epsilon) ** least <= 0.1 < (1 - epsilon) ** (least - 1)


def test_losses_that_are_small_at_worst_need_fewer() -> None:
    """If no query can lose more than a tenth, a tenth of the queries do."""
    assert least_queries(0.01, 0.1, half_width=0.1) == 22
    assert queries_needed(0.0, 0.0, 0.01, 0.1, half_width=0.1) == 35


def test_the_rule_of_the_certificate() -> None:
    """1.5 x [2 x 2.3026 x .01/.0001 + 230.26] = 1,036.2; a mean loss of half epsilon takes more than twice that."""
    assert queries_needed(0.1, 0.0, 0.01, 0.1) == 1037
    assert queries_needed(0.1, 0.005, 0.01, 0.1) == 3454
    assert queries_needed(0.1, 0.01, 0.01, 0.1) is None


def test_forty_three_queries_cannot_certify_one_percent() -> None:
    """It is said in words: at least 230, and about how many at the spread seen."""
    found = claim(43, 0.15, 0.0, 0.01, 0.1)
    assert (found.supported, found.least, found.needed) == (False, 230, 1900)
    assert found.says == (
        "43 queries cannot certify 1%: at least 230 are needed at 90% confidence even if no query loses anything; "
        "about 1,900 at the mean loss (0) and spread (0.15) seen"
    )


@pytest.mark.parametrize(
    ("queries", "sigma", "mu", "supported", "says"),
    [
        (300, 0.1, 0.0, False, "300 queries are too few to count on certifying 1% at 90% confidence: it takes about"),
        (3000, 0.1, 0.0, True, "3,000 queries can support a claim of 1% at 90% confidence: it takes about 1,040"),
        (9999, 0.1, 0.012, False, "9,999 queries cannot certify 1%: the mean loss seen is 1.2%, at which no number"),
        (
            43,
            0.1,
            -0.05,
            False,
            "43 queries are too few to count on certifying 1% at 90% confidence: it takes about 77",
        ),
        (
            43,
            0.1,
            0.012,
            False,
            "43 queries cannot certify 1%: at least 230 are needed at 90% confidence even if no que",
        ),
        (200, 0.1, -0.05, True, "200 queries can support a claim of 1% at 90% confidence: it takes about 77 at"),
        (
            9,
            None,
            0.0,
            False,
            "9 queries cannot certify 1%: at least 230 are needed at 90% confidence even if no query",
        ),
    ],
)
def test_what_is_said_of_other_samples(
    queries: int, sigma: float | None, mu: float, supported: bool, says: str
) -> None:
    """Too few, enough, a loss that is too large, gains that offset losses, and no spread to go by."""
    found = claim(queries, sigma, mu, 0.01, 0.1)
    assert found.says.startswith(says)
    assert found.supported is supported


def test_what_makes_no_sense_is_refused_by_name() -> None:
    """Levels outside (0, 1), a negative spread, a margin beyond every loss, no queries, NaN."""
    with pytest.raises(ConfigError, match="delta: 1 is not between 0 and 1"):
        queries_needed(0.1, 0.0, 0.01, 1.0)
    with pytest.raises(ConfigError, match="sigma: -1 is not a number of at least 0"):
        queries_needed(-1.0, 0.0, 0.01, 0.1)
    with pytest.raises(ConfigError, match="epsilon: 2 is not between 0 and 1"):
        least_queries(2.0, 0.1)
    with pytest.raises(ConfigError, match="power: 0 is not between 0 and 1"):
        non_inferiority_queries(0.1, 0.0, 0.01, 0.1, power=0.0)
    with pytest.raises(ConfigError, match="queries: 0 is not at least 1"):
        detectable_loss(0, 0.1, 0.1)
    with pytest.raises(ConfigError, match="losses: 1 of 1 are not finite"):
        non_inferiority_p([np.nan], 0.01)
