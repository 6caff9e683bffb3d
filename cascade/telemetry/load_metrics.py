"""Metrics of the servers of stages, and of this machine's cores in their place: whether they serve, and how full they are."""

from __future__ import annotations

from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declaring
from cascade.types import StageName

__all__ = ["LoadMetrics"]


class LoadMetrics:
    """Gauges, set when metrics are read."""

    def __init__(self, declare: Declaring) -> None:
        self.unusable = declare.gauge(
            STABLE, "cascade_stage_unusable", "1 where a server cannot serve its stage", ["stage"]
        )
        self.waiting = declare.gauge(
            STABLE,
            "cascade_upstream_waiting",
            "Pairs waiting at a server, as it tells, or for this machine's cores",
            ["stage"],
        )
        self.stale = declare.gauge(
            EXPERIMENTAL,
            "cascade_upstream_signal_stale",
            "1 where what a server told of its load is too old to count",
            ["stage"],
        )
        self.silent = declare.gauge(
            EXPERIMENTAL,
            "cascade_upstream_signal_silent",
            "1 where a server told of its load and has not for so long that it counts as one that tells nothing",
            ["stage"],
        )

    def forget_stage(self, stage: StageName) -> None:
        """Show nothing any more of a stage that the release does not have."""
        self.unusable.remove(stage)
        self.forget(stage)

    def forget(self, stage: StageName) -> None:
        """Show nothing any more of the load of a server that tells none."""
        for gauge in (self.waiting, self.stale, self.silent):
            gauge.remove(stage)
