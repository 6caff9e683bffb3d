"""Certifying on real scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.fit.certify.asked import Asked
from cascade.fit.certify.replays import Family
from cascade.fit.certify.run import Supplied, certify
from cascade.replay.queries import Roles
from cascade.replay.table import read_table
from evals.first_stage import shared_data

_TABLE = shared_data() / "jqara.parquet"
_ROLES = Roles(("bm25", "me5_small"), "ce_ja_xsmall", "ce_bge_v2_m3")


@pytest.mark.data
@pytest.mark.skipif(not _TABLE.exists(), reason="the shared score tables are not there")
def test_one_percent_is_certified_on_jqara(tmp_path: Path) -> None:
    """A constant top m keeps it with a third of the pairs at most, shown by about 1,167 queries."""
    given = Supplied(tmp_path / "attempts.jsonl", {})
    told = certify([read_table(_TABLE)], Asked(_ROLES, 0.01, families=(Family.STATIC,)), given).certificate
    assert told is not None
    assert 0.1 < told.large_share < 0.35
    assert told.bound <= 0.01
