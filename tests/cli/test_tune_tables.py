"""What ``cascade tune`` prints."""

from __future__ import annotations

import io

from rich.console import Console

from cascade.cli.tune_tables import print_tuning
from tests.tuning.made import tuning_of


def test_a_slow_pace_is_told_in_full() -> None:
    """What is pasted into a plan: a tenth of a pair a second would be nothing, or a third too much."""
    spread = {"median": 0.0431, "least": 0.04, "most": 0.05, "n": 3}
    chosen = {"threads": 2, "max_in_flight": 64, "batching": {"mode": "one-pair"}, "pairs_per_s": spread}
    written = io.StringIO()
    print_tuning(tuning_of(chosen=chosen), 187.4, "sha256:0", Console(file=written, width=200))
    assert "capacity  --throughput large=pairs_per_s:0.0431,pair_tokens:187\n" in written.getvalue()
