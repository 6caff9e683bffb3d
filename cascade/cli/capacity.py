"""``cascade capacity``."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from cascade import __version__
from cascade.capacity.headroom import Headroom, parse_unavailable
from cascade.capacity.planning import make_plan
from cascade.capacity.throughput import throughputs_of
from cascade.capacity.told import told
from cascade.cli.capacity_inputs import (
    Arriving,
    have_of,
    levels_of,
    traffic_from_metrics,
    traffic_from_records,
    traffic_from_workload,
    written_throughputs,
)
from cascade.cli.capacity_tables import print_plan
from cascade.cli.options import ReleaseFile, check_out, write_out
from cascade.errors import ConfigError
from cascade.rollout.load import LoadedRelease, named_release, offline
from cascade.server.reading import read_release
from cascade.server.settings import load_settings

__all__ = ["capacity"]


def capacity(
    release: ReleaseFile = None,
    workload: Annotated[
        Path | None, typer.Option("--workload", help="Workload in YAML or JSON.", show_default=False)
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option("--records", help="Decision records in place of a workload; repeat it.", show_default=False),
    ] = None,
    metrics: Annotated[
        list[Path] | None,
        typer.Option(
            "--metrics",
            help="What /metrics printed, in place of a workload; repeat it for later scrapes of the same process.",
            show_default=False,
        ),
    ] = None,
    throughput: Annotated[
        list[str] | None,
        typer.Option(
            "--throughput",
            help="Measured on one replica: small=pairs_per_s:400,large=tokens_per_s:60000,sidecar=requests_per_s:700.",
            show_default=False,
        ),
    ] = None,
    measured: Annotated[
        Path | None, typer.Option("--measured", help="Throughputs in YAML or JSON.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Report of `cascade eval --release`: what it sends.", show_default=False),
    ] = None,
    window_seconds: Annotated[
        float, typer.Option("--window-seconds", min=1.0, max=86400.0, help="Length of a window of records.")
    ] = 60.0,
    burst: Annotated[
        float | None,
        typer.Option("--burst", help="How far a burst stands above the busiest window.", show_default=False),
    ] = None,
    growth: Annotated[float, typer.Option("--growth", help="Plan for so many times the arrivals.")] = 1.0,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Busy share that is safe, all up.")] = 0.6,
    max_utilisation: Annotated[
        float, typer.Option("--max-utilisation", help="Busy share that is borne while some are down.")
    ] = 0.85,
    failures: Annotated[int, typer.Option("--failures", help="Replicas of a pool that may fail at a time.")] = 1,
    max_unavailable: Annotated[
        str, typer.Option("--max-unavailable", help="Replicas that an update takes down: a count, or a percentage.")
    ] = "25%",
    both: Annotated[
        bool, typer.Option("--both/--one-at-a-time", help="Plan for a failure during an update, or each alone.")
    ] = True,
    have: Annotated[
        str | None,
        typer.Option(
            "--have", help="Replicas there are, as in small=2,large=3: what do they carry?", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where capacity.json is written.", show_default=False)
    ] = None,
) -> None:
    """Plan replicas of each stage for a workload, at every level of a release, with headroom. No server is asked."""
    if out is not None:
        check_out(out)
    named = None if release is None or "://" in release else str(named_release(release))
    loaded = read_release(load_settings({"release": named or release}, environment={}), offline(os.environ))
    arriving = _arriving(loaded, workload, records or [], metrics or [], window_s=window_seconds, burst=burst)
    if not 0 < growth < math.inf:
        raise ConfigError("--growth: write a number above 0")
    arrivals = arriving.traffic.arrivals.grown(growth)
    traffic = replace(arriving.traffic, arrivals=arrivals)
    written = written_throughputs(throughput or [], measured)
    levels, reported, notes = levels_of(loaded, arriving, report)
    headroom = Headroom(utilisation, max_utilisation, failures, parse_unavailable(max_unavailable), both)
    plan = make_plan(levels, traffic, throughputs_of(written), headroom, have_of(have))
    plan = replace(plan, notes=(*plan.notes, *notes, *arriving.notes))
    data = told(
        plan,
        {
            "cascade": __version__,
            "release": loaded.release.release,
            "release_digest": loaded.digest,
            "policy_digest": loaded.policy_digest,
            **arriving.conditions,
            **reported,
            "growth": growth,
            "throughput": written,
        },
    )
    if out is not None:
        write_out(out, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    print_plan(data, Console())
    if out is not None:
        typer.echo(f"plan: {out}")


def _arriving(
    loaded: LoadedRelease,
    workload: Path | None,
    records: list[Path],
    metrics: list[Path],
    *,
    window_s: float,
    burst: float | None,
) -> Arriving:
    """Return what arrives, by the one way that was named."""
    if sum(map(bool, (workload, records, metrics))) != 1:
        raise ConfigError("name one of --workload, --records and --metrics")
    if burst is not None and not 1 <= burst < math.inf:
        raise ConfigError("--burst: write a number from 1 up")
    factor = 1.0 if burst is None else burst
    if metrics:
        return traffic_from_metrics(metrics, loaded, burst_factor=factor)
    if workload is None:
        return traffic_from_records(records, loaded, window_s=window_s, burst_factor=factor)
    found = traffic_from_workload(workload)
    if burst is None:
        return found
    arrivals = replace(found.traffic.arrivals, burst_factor=burst)
    return replace(found, traffic=replace(found.traffic, arrivals=arrivals))
