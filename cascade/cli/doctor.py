"""``cascade doctor``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.server.building import read_release
from cascade.server.settings import Settings
from cascade.stages.build import build_stages
from cascade.stages.doctor import Examination, examine
from cascade.stages.onnx_model import worker_pool
from cascade.telemetry.logs import configure_logging
from cascade.types import StageName

__all__ = ["doctor"]


def doctor(
    release: ReleaseFile = None,
    config: ConfigFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine the stages of a release: what serves them, whether it scores right, how fast, and what to change.

    Exits with 1 where a stage does not score right.
    """
    configure_logging("error", sys.stderr.buffer)
    found = asyncio.run(_examine(settings_from(config, release=release)))
    if json:
        sys.stdout.buffer.write(orjson.dumps({str(k): asdict(v) for k, v in found.items()}, option=_OPTIONS) + b"\n")
    else:
        for name, examination in found.items():
            _print(name, examination)
    if any(examination.probe.verdict != "ok" for examination in found.values()):
        raise typer.Exit(1)


_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS


async def _examine(settings: Settings) -> dict[StageName, Examination]:
    release = read_release(settings).release
    budgets = {StageName.SMALL: release.budgets.small_ms, StageName.LARGE: release.budgets.large_ms}
    specs = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    pool = worker_pool(settings.embedded_threads)
    stages = build_stages(release, clock=time.monotonic, pool=pool, environment=os.environ)
    found: dict[StageName, Examination] = {}
    try:
        for name, stage in stages.items():
            spec = specs[name]
            if spec is not None:
                found[name] = await examine(stage, spec, budgets[name], time.monotonic)
    finally:
        await asyncio.gather(*(stage.aclose() for stage in stages.values()), return_exceptions=True)
        pool.shutdown(wait=True, cancel_futures=True)
    return found


def _print(name: StageName, found: Examination) -> None:
    told = {
        key: value for key, value in (asdict(found.observed) if found.observed else {}).items() if value is not None
    }
    typer.echo(f"{name}")
    typer.echo("  server   " + (", ".join(f"{key} {value}" for key, value in told.items()) or "tells nothing"))
    code = f" ({found.unusable or found.probe.code})" if found.unusable or found.probe.code else ""
    typer.echo(f"  scoring  {found.probe.verdict}{code}, {found.probe.elapsed_ms:.0f} ms")
    if found.latency_ms:
        typer.echo("  latency  " + ", ".join(f"{size}: {taken:.0f} ms" for size, taken in found.latency_ms.items()))
    for line in found.advice:
        typer.echo(f"  change   {line}")
