"""The policies that a policy is compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.metrics import Gain, ndcg
from cascade.policy.merge import merge
from cascade.replay import baselines
from cascade.replay.baselines import fused_ranks, small_ranks, within_depth
from cascade.replay.coded import decoded
from cascade.replay.queries import ReplayedQuery, replayed
from cascade.replay.sweep import Metric
from tests.replay.made import ROLES, made_queries, made_query, made_table
from tests.replay.made_calibration import made_calibration

_NDCG = Metric.NDCG
_NAN = float("nan")
_QUERIES = made_queries()


def _ndcg(query: ReplayedQuery, order: list[int], k: int) -> float:
    """Return nDCG@k of an order by the metric of lists."""
    grades = {str(index): int(gain) for index, gain in enumerate(query.judgement.gains)}
    return ndcg([str(index) for index in order], grades, k)


def test_static_is_what_the_sidecar_would_serve_at_every_m() -> None:
    """Quality at each m is nDCG of the merged order of the small order's top m by large score."""
    sweep = baselines.static(_QUERIES, 5, _NDCG, small_ranks(_QUERIES))
    assert sweep.settings == tuple(float(m) for m in range(20, -1, -1))
    for column, query in enumerate(_QUERIES[:5]):
        small = dict(enumerate(query.small.tolist()))
        best_first = merge(20, small, None)[0]
        for row, m in enumerate(range(20, -1, -1)):
            large = {index: float(query.large[index]) for index in best_first[:m]}
            assert sweep.quality[row, column] == pytest.approx(_ndcg(query, merge(20, small, large)[0], 5))
            assert sweep.pairs[row, column] == m


def test_the_ends_of_static_are_large_and_small() -> None:
    """With m of nought it is the small order, with all candidates the large one; random has the same ends."""
    static = baselines.static(_QUERIES, 5, _NDCG, small_ranks(_QUERIES))
    small, large = baselines.small(_QUERIES, 5, _NDCG), baselines.large(_QUERIES, 5, _NDCG)
    random = baselines.random(_QUERIES, 5, _NDCG)
    for metric in Metric:
        for sweep in (static, random):
            assert sweep.metrics[metric][0].tolist() == large.metrics[metric][0].tolist()
            assert sweep.metrics[metric][-1].tolist() == small.metrics[metric][0].tolist()
    assert random.settings == (1.0, 0.0)
    assert large.tokens is not None
    assert large.tokens[0].tolist() == [query.tokens.sum() for query in _QUERIES if query.tokens is not None]


def test_the_first_stage_engages_nothing() -> None:
    """It serves the order that came; every other baseline engages a reranker on every query."""
    first = baselines.first_stage(_QUERIES, 5, _NDCG)
    assert first.quality[0].tolist() == pytest.approx([_ndcg(query, list(range(20)), 5) for query in _QUERIES])
    assert not first.engaged.any()
    assert not first.pairs.any()
    assert baselines.small(_QUERIES, 5, _NDCG).engaged.all()


def test_queries_of_different_length_share_the_settings() -> None:
    """A query with fewer candidates than m sends all it has."""
    short, long = (
        made_query([1.0, 2.0], [2.0, 1.0], [0.0, 1.0]),
        made_query([1.0] * 3, [3.0, 2.0, 1.0], [1.0, 0.0, 0.0]),
    )
    sweep = baselines.static([short, long], 10, _NDCG, small_ranks([short, long]))
    assert sweep.pairs.tolist() == [[2, 3], [2, 2], [1, 1], [0, 0]]


def test_nothing_beyond_depth_is_sent() -> None:
    """Static with m above the depth sends what lies within it."""
    query = made_query([1.0, 2.0, _NAN], [2.0, 1.0, _NAN], [0.0, 1.0, 0.0])
    shallow = ReplayedQuery(query.small, query.large, {}, None, query.judgement, 2)
    for sweep in (baselines.large([shallow], 10, _NDCG), baselines.random([shallow], 10, _NDCG)):
        assert sweep.pairs[0, 0] == 2
    assert baselines.static([shallow], 10, _NDCG, small_ranks([shallow])).settings == (2.0, 1.0, 0.0)


def test_the_oracle_sends_the_least_that_holds_the_large_top() -> None:
    """Free of cost it stops right behind the last member; where a pair costs more than a member it sends nothing."""
    query = made_query([5.0, 4.0, 3.0, 2.0, 1.0], [9.0, 1.0, 2.0, 8.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0])
    sweep = baselines.oracle([query], 2, _NDCG, small_ranks([query]))
    assert sweep.settings[0] == 0.0
    assert sweep.pairs[0, 0] == 4
    assert sweep.pairs[-1, 0] == 0
    assert sweep.quality[0, 0] == 1.0
    assert np.all(np.diff(sweep.pairs[:, 0]) <= 0)
    assert set(sweep.pairs[:, 0].tolist()) == {4.0, 1.0, 0.0}


def test_the_oracle_is_as_good_as_large_at_no_more_than_its_cost() -> None:
    """Whoever holds the whole top k serves the large stage's top k."""
    oracle, large = baselines.oracle(_QUERIES, 5, _NDCG, small_ranks(_QUERIES)), baselines.large(_QUERIES, 5, _NDCG)
    assert oracle.quality[0].tolist() == pytest.approx(large.quality[0].tolist())
    assert (oracle.pairs[0] <= large.pairs[0]).all()


def test_a_candidate_that_the_large_stage_excluded_costs_a_pair_and_stays_in_the_small_order() -> None:
    """Its pair was sent; it stands behind the block, where the small stage put it."""
    query = made_query([3.0, 2.0, 1.0], [_NAN, 1.0, 2.0], [0.0, 0.0, 1.0])
    large = baselines.large([query], 1, _NDCG)
    assert large.pairs[0, 0] == 3
    assert large.quality[0, 0] == 1.0


def test_silver_queries_have_ndcg_only() -> None:
    """Without judgements there is nothing to find or to hit."""
    query = made_query([1.0, 2.0], [2.0, 1.0], [1.0, 0.5])
    judgement = query.judgement
    silver = type(judgement)(judgement.gains, judgement.relevant, judgement.judged, 1.0, 0, silver=True)
    sweep = baselines.small([ReplayedQuery(query.small, query.large, {}, None, silver, 2)], 2, _NDCG)
    assert set(sweep.metrics) == {Metric.NDCG}
    assert sweep.tokens is None


def test_a_sweep_on_some_queries_keeps_their_columns() -> None:
    """Everything that is told of a query goes with it."""
    sweep = baselines.static(_QUERIES, 5, Metric.MRR, small_ranks(_QUERIES))
    part = sweep.take(np.array([3, 1]))
    assert part.quality.tolist() == sweep.metrics[Metric.MRR][:, [3, 1]].tolist()
    assert part.pairs.shape == decoded(part.judged).shape == part.engaged.shape == (21, 2)
    assert part.tokens is not None
    assert part.tokens.shape == (21, 2)
    assert (
        baselines.static([made_query([1.0], [1.0], [1.0])], 5, _NDCG, small_ranks([made_query([1.0], [1.0], [1.0])]))
        .take(np.array([0]))
        .tokens
        is None
    )


def test_the_fused_order_follows_the_calibration_within_depth() -> None:
    """The likeliest of the large top come first; what lies beyond depth comes last."""
    calibration = made_calibration()
    (query,) = replayed([made_table(1)], replace(ROLES, depth=15), 5, Gain.LINEAR).queries
    (ranks,) = fused_ranks([query], calibration, 5)
    small, channels = within_depth(query)
    value = calibration.value(calibration.entry(small, channels), 5)
    assert np.argsort(ranks)[:15].tolist() == np.argsort(-value, kind="stable").tolist()
    assert ranks[15:].tolist() == [15, 16, 17, 18, 19]


def test_the_fused_order_reads_channels_that_the_small_order_does_not_know() -> None:
    """With two independent channels, static-fused finds the large top at less cost than static."""
    queries = made_queries(80)
    area = [
        baselines.static(queries, 5, _NDCG, ranks).quality[5:15].mean()
        for ranks in (small_ranks(queries), fused_ranks(queries, made_calibration(), 5))
    ]
    assert area[1] > area[0]


def test_a_query_that_the_calibration_does_not_fit_keeps_the_small_order() -> None:
    """Out of its valid range nothing is estimated."""
    ranks = fused_ranks(_QUERIES[:1], made_calibration(least_candidates=50), 5)
    assert ranks[0].tolist() == small_ranks(_QUERIES[:1])[0].tolist()


def test_a_cutoff_that_is_not_estimated_is_read_at_the_calibrations_own() -> None:
    """The value is known at the cutoffs of the calibration only."""
    seven, own = (fused_ranks(_QUERIES[:3], made_calibration(), k) for k in (7, 5))
    assert [ranks.tolist() for ranks in seven] == [ranks.tolist() for ranks in own]
