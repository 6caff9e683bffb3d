"""``cascade tune``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from cascade.calibration.artefact import artefact_digest
from cascade.cli.options import ConfigFile, check_out, settings_from, write_out
from cascade.cli.tune_inputs import LengthsFrom, candidates_of, deadline_of, stage_of, with_weights
from cascade.cli.tune_parity import limits_of, unlike_first
from cascade.cli.tune_tables import print_tuning
from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.policy.tuning import Tuning, tuning_bytes
from cascade.rollout.load import load_release, named_release, offline
from cascade.telemetry.logs import configure_logging
from cascade.tuning.lengths import LengthSamples
from cascade.tuning.measuring import StageBench, read_tokens
from cascade.tuning.run import Question, tune_stage
from cascade.types import StageName

__all__ = ["tune"]

_LEAST_SECONDS = 1.0
_BY_SIGNAL = 128
"""Exit status of a process that a signal ended, less its number."""


def tune(
    release: Annotated[str, typer.Argument(help="A release in YAML, a bundle, or the name of a packaged one.")],
    out: Annotated[Path, typer.Option("--out", help="JSON file to make; a release names it by its digest.")],
    stage: Annotated[
        Literal["small", "large"] | None, typer.Option("--stage", help="Unset: the only one that runs here.")
    ] = None,
    lengths: Annotated[
        Path | None, typer.Option(help="File with a line for each pair: tokens of its query, tokens of the pair.")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Score table: its columns q_tokens and tokens.")] = None,
    records: Annotated[
        list[Path] | None, typer.Option(help="Decision records, a file or a folder; repeat it.", show_default=False)
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="File with a query, a tab and a document a line; parity is checked on them too.")
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FOLDER of weights in another precision, the reference first; repeat it.", show_default=False
        ),
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(help="NAME=NUMBER,... in place of parity's limits for --weights, as max_error=1,min_kendall=0.9."),
    ] = None,
    candidates: Annotated[
        str, typer.Option(help="Candidates of a request, each as often as the others.")
    ] = "20,50,100",
    deadline_ms: Annotated[
        float | None,
        typer.Option("--deadline-ms", min=1.0, help="Deadline of a request; unset: the release's for the stage."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=_LEAST_SECONDS, max=86_400.0, help="About how long the search may take.")
    ] = 600.0,
    repeats: Annotated[int, typer.Option(min=2, max=25, help="Measurements of each value, in turns.")] = 3,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of lengths, texts, arrivals and turns.")] = 0,
    config: ConfigFile = None,
) -> None:
    """Choose threads, batches and precision of an embedded stage on this machine, for your own lengths.

    Nothing is written before the end. Each step is told on stderr when it begins.
    """
    configure_logging("error", sys.stderr.buffer)
    check_out(out)
    if out.exists():
        raise ConfigError(f"--out {out}: is there already, and releases may name it; name another file")
    loaded = _release(release)
    name, spec = stage_of(loaded, None if stage is None else StageName(stage))
    tuned = with_weights(spec, weights or [])
    tolerances = limits_of(limits)
    samples, texts = LengthsFrom(lengths, table, records or (), pairs).read(tuned.count, seed)
    question = Question(
        stage=name,
        specs=tuned.specs,
        sha256=tuned.sha256,
        candidates=candidates_of(candidates),
        deadline_ms=deadline_of(loaded, name, deadline_ms),
        max_in_flight=settings_from(config).max_in_flight,
        seconds=seconds,
        repeats=repeats,
        seed=seed,
    )
    bench = StageBench(
        name,
        tuned.specs,
        tuned.words,
        samples,
        candidates=question.candidates,
        deadline_ms=question.deadline_ms,
        seed=seed,
        clock=time.monotonic,
        unlike_first=unlike_first(tuned.specs, texts, tolerances, seed),
    )
    found = _run(question, samples, bench)
    data = tuning_bytes(found)
    write_out(out, data)
    print_tuning(found, samples.mean_pair(read_tokens(spec)), artefact_digest(data), Console())


def _run(question: Question, samples: LengthSamples, bench: StageBench) -> Tuning:
    """Tune, telling each step. Raises typer.Exit where a signal ends it, and says how far it was."""
    began, at = time.monotonic(), "the beginning"

    def told(what: str) -> None:
        nonlocal at
        at = what
        typer.echo(f"tuning: {time.monotonic() - began:.0f} s: {what}", err=True)

    try:
        return asyncio.run(_tuned(question, samples, bench, told))
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        ended = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
    typer.echo(f"cascade: ended by {ended.name} at {at}: nothing is written", err=True)
    raise typer.Exit(_BY_SIGNAL + ended)


async def _tuned(question: Question, samples: LengthSamples, bench: StageBench, told: Callable[[str], None]) -> Tuning:
    task = asyncio.current_task()
    if task is not None:
        with suppress(NotImplementedError):  # where the platform has no such signal
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await tune_stage(question, samples, bench, clock=time.monotonic, told=told)
    finally:
        await bench.aclose()


def _release(written: str) -> Release:
    return load_release(named_release(written), offline(os.environ)).release
