"""``cascade doctor``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import asdict, replace
from typing import Annotated

import orjson
import typer

from cascade.cli.doctor_tls import certificates, print_certificates
from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.policy.release import Release
from cascade.rollout.bundle import Bundle
from cascade.rollout.loadable import weights_here
from cascade.rollout.tuned import elsewhere, not_of_stage
from cascade.server.building import read_bundle
from cascade.server.caching import examine_cache
from cascade.server.settings import Settings
from cascade.stages.build import build_stages
from cascade.stages.cores import usable_cores
from cascade.stages.doctor import Examination, examine
from cascade.stages.engine.workers import worker_pool
from cascade.stages.machine import this_machine
from cascade.telemetry.logs import configure_logging
from cascade.types import StageName

__all__ = ["doctor"]


def doctor(
    release: ReleaseFile = None,
    config: ConfigFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine the stages of a release, certificates and the score cache: what serves them, whether it scores right, how fast, what to change.

    Exits with 1 where a stage does not score right, or a listener's certificate cannot be used. A Redis that does not answer costs no answer, and no exit status.
    """
    configure_logging("error", sys.stderr.buffer)
    settings = settings_from(config, release=release)
    bundle = read_bundle(settings)
    found = asyncio.run(_examine(bundle.loaded.release, settings))
    tuned = _tuned(bundle, settings)
    found = {name: replace(each, advice=(*each.advice, *tuned.get(name, ()))) for name, each in found.items()}
    shown = asyncio.run(certificates(settings, bundle.loaded.release, time.time()))
    kind, why_not = asyncio.run(examine_cache(settings, os.environ, time.monotonic))
    if json:
        told = {
            **{str(k): asdict(v) for k, v in found.items()},
            "certificates": [asdict(each) for each in shown],
            "cache": {"kind": kind, "why_not": why_not},
        }
        sys.stdout.buffer.write(orjson.dumps(told, option=_OPTIONS) + b"\n")
    else:
        for name, examination in found.items():
            _print(name, examination)
        print_certificates(shown)
        typer.echo(f"cache\n  kept in  {kind}")
        if why_not is not None:
            typer.echo(f"  change   {why_not}")
    if any(each.probe.verdict != "ok" for each in found.values()) or any(each.days is None for each in shown):
        raise typer.Exit(1)


_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS


async def _examine(release: Release, settings: Settings) -> dict[StageName, Examination]:
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
        pool.close()
    return found


def _tuned(bundle: Bundle, settings: Settings) -> dict[StageName, list[str]]:
    """Return what is said of the tuning of each stage that names one."""
    threads = settings.embedded_threads or usable_cores()
    told = {
        name: [f"tuned under other conditions: {one}" for one in elsewhere(each.tuning, this_machine(), threads)]
        for name, each in bundle.tunings.by_stage.items()
    }
    release = bundle.loaded.release
    for name, what in not_of_stage(release, bundle.tunings, weights_here(release)):
        told[name].append(f"tuned for another stage: {what}")
    return told | {name: [f"no number of its tuning is used: {why}"] for name, why in bundle.tunings.faults.items()}


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
