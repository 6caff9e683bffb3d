"""What /metrics prints of traffic that can be worked out by hand."""

from __future__ import annotations

from typing import Any

from cascade.telemetry.metrics import Metrics
from cascade.telemetry.work import Counted, ReadPairs
from cascade.types import Arm, StageName
from tests.telemetry.decisions import decision, round_of

__all__ = ["Counting"]


class Counting:
    """A process whose requests have 50 candidates of 100 tokens each, of which 20 go to the large stage, and clocks that stand."""

    def __init__(self, digest: str = "sha256:r1", began_at: float = 1.5e9) -> None:
        self.now = 0.0
        self.metrics = Metrics(lambda: self.now, lambda: began_at)
        self.metrics.arms.serve([("r1", digest, Arm.STABLE)], 0.0)

    def serve(self, requests: int, seconds: float, **changes: Any) -> Counting:
        """Answer so many requests in so many seconds; ``changes`` are those of a decision."""
        self.now += seconds
        for _ in range(requests):
            rounds = (
                round_of(sent=50, scored=50, blank=0, refused=0),
                round_of(StageName.LARGE, sent=20, scored=20, blank=0, refused=0),
            )
            self.metrics.observe(decision(**({"candidates": 50, "rounds": rounds} | changes)))
            for stage, pairs in ((StageName.SMALL, 50), (StageName.LARGE, 20)):
                self.metrics.work.events(stage).read(ReadPairs(Counted.ESTIMATED, 8.0, [100.0] * pairs))
        return self

    def printed(self) -> str:
        """Return what /metrics prints now."""
        return self.metrics.exposition().decode()
