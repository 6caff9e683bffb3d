"""The bound on what judgements can say, against what they do say of real rerankers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cascade.metrics import Gain, ndcg_rows
from cascade.metrics.med import most_ndcg_lost
from cascade.replay.queries import Roles, replayed
from cascade.replay.serving import served_orders
from cascade.replay.table import read_table
from evals.first_stage import shared_data

pytestmark = pytest.mark.data


@pytest.mark.parametrize("top_m", [5, 20])
def test_no_query_loses_more_than_the_bound_and_none_wins_more(top_m: int) -> None:
    """JQaRA, the first 300 queries: nDCG@10 of always-large minus that of a static top of the small order."""
    path: Path = shared_data() / "jqara.parquet"
    if not path.exists():
        pytest.skip("jqara.parquet is not in the shared data")
    table = read_table(path).take(range(300))
    found = replayed([table], Roles(("bm25", "me5_small"), "ce_ja_xsmall", "ce_bge_v2_m3"), 10, Gain.LINEAR)
    lost, most_lost = [], []
    for query in found.queries:
        order = np.argsort(-query.small, kind="stable")
        sent = np.stack(
            [np.ones(query.small.size, dtype=np.bool_), np.isin(np.arange(query.small.size), order[:top_m])]
        )
        large, static = served_orders(sent, query.small, query.large)
        judged = query.judgement
        qualities = ndcg_rows(judged.gains[np.stack([large, static])[:, :10]], judged.ideal, 10)
        difference = float(qualities[0] - qualities[1])
        bounds = [
            most_ndcg_lost(*each, 10) for each in ((large.tolist(), static.tolist()), (static.tolist(), large.tolist()))
        ]
        assert -bounds[1] - 1e-9 <= difference <= bounds[0] + 1e-9
        lost.append(difference)
        most_lost.append(bounds[0])
    assert np.mean(lost) < 0.5 * np.mean(most_lost)
