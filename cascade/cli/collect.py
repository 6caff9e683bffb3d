"""``cascade collect``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cascade.cli.collect_records import table_of_records
from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.replay.collect import choose_queries
from cascade.replay.collection import load_collection
from cascade.replay.run import Asked, Collected, Report, check_output, collect_table
from cascade.replay.scorers import scorer_columns
from cascade.server.building import read_release
from cascade.server.settings import Settings
from cascade.stages.build import build_stages
from cascade.stages.cores import usable_cores
from cascade.stages.engine.workers import worker_pool
from cascade.telemetry.logs import configure_logging
from cascade.types import StageName

__all__ = ["collect"]

_INTERRUPTED: Final = 130
_FAILED: Final = 1


def collect(
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    dataset: Annotated[
        Path | None,
        typer.Option(help="Folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels.tsv or qrels/test.tsv."),
    ] = None,
    from_records: Annotated[
        list[Path] | None, typer.Option("--from-records", help="File of decision records, in place of a dataset.")
    ] = None,
    more_records: Annotated[list[Path] | None, typer.Argument(help="More files of decision records.")] = None,
    release_digest: Annotated[
        str | None, typer.Option(help="Of records: only those of this release, by its digest.")
    ] = None,
    complete: Annotated[
        bool,
        typer.Option("--complete/--all", help="Of records: only those that both stages scored whole, or the rest too."),
    ] = True,
    release: ReleaseFile = None,
    depth: Annotated[int, typer.Option(min=1, help="Candidates of the first stage that are scored.")] = 100,
    queries: Annotated[
        int | None, typer.Option(min=1, help="How many queries, the same ones every time; unset: all that are judged.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="File of judgements in place of the dataset's own.")] = None,
    dense: Annotated[
        bool, typer.Option("--dense", help="Search by the vectors of the release's embedding stage too.")
    ] = False,
    scorers: Annotated[
        str | None, typer.Option(help="Stages that score, for example small,large; unset: all of the release.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Column of a stage's scores, for example small=bge_small.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Queries that are scored at the same time.")] = 1,
    config: ConfigFile = None,
) -> None:
    """Score the candidates of a collection's queries with a release's stages, into a score table.

    Or make the table of decision records: no model is called then, and of the other options only --name holds.
    An interrupted run goes on where it stopped when it is started again. Exits with 1 where queries
    could not be scored, and with 130 when interrupted.
    """
    configure_logging("error", sys.stderr.buffer)
    if from_records:
        for option, value in (
            ("--dataset", dataset),
            ("--queries", queries),
            ("--qrels", qrels),
            ("--scorers", scorers),
        ):
            if value is not None:
                raise ConfigError(f"{option} does not go with --from-records")
        table_of_records([*from_records, *(more_records or [])], out, name or [], release_digest, complete=complete)
        return
    if dataset is None:
        raise ConfigError("name either --dataset or --from-records")
    if more_records:
        raise ConfigError("files of decision records are named behind --from-records")
    settings = settings_from(config, release=release)
    loaded = read_release(settings).release
    specs = {StageName.SMALL: loaded.stages.small, StageName.LARGE: loaded.stages.large}
    there = [stage for stage, spec in specs.items() if spec is not None]
    columns = scorer_columns(there, None if scorers is None else scorers.split(","), name or [])
    for stage in columns.values():
        spec = specs[stage]
        if spec is not None and spec.orders:
            raise ConfigError(
                f"stage {stage}: adapter {spec.adapter} orders the list that it is shown, so a document has no score to be "
                "kept; leave it out with --scorers"
            )
    check_output(out)
    collection = load_collection(dataset, qrels)
    asked = Asked(collection, choose_queries(collection, queries), columns, out, depth, dense, concurrency)
    try:
        with _progress_bar() as report:
            told = asyncio.run(_run(asked, settings, loaded, report))
    except KeyboardInterrupt:
        typer.echo(f"cascade: interrupted; {asked.journal} keeps what is done: run the same again to go on", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    _tell(asked, told)
    if told.failed:
        raise typer.Exit(_FAILED)


async def _run(asked: Asked, settings: Settings, release: Release, report: Report) -> Collected:
    pool = worker_pool(settings.embedded_threads)
    stages = build_stages(release, clock=time.monotonic, pool=pool, environment=os.environ)
    try:
        for name, stage in stages.items():
            await stage.start()
            if stage.unusable is not None:
                raise ConfigError(f"stage {name}: its server cannot be used: {stage.unusable}")
        return await collect_table(
            asked,
            stages,
            clock=time.monotonic,
            now=lambda: datetime.now(UTC),
            threads=settings.embedded_threads or usable_cores(),
            report=report,
        )
    finally:
        await asyncio.gather(*(stage.aclose() for stage in stages.values()), return_exceptions=True)
        pool.close()


@contextmanager
def _progress_bar() -> Iterator[Report]:
    """Show a bar for each thing counted on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield report


def _tell(asked: Asked, told: Collected) -> None:
    if told.rows:
        excluded = ", ".join(f"{count} by {name}" for name, count in told.excluded.items() if count) or "none"
        typer.echo(f"{asked.out}: {told.scored} queries, {told.rows} rows; left out: {excluded}")
    if told.without_candidates:
        typer.echo(f"{told.without_candidates} queries have no candidate, and so no row")
    if told.failed:
        rest = "the table has the others" if told.rows else "no table was written"
        typer.echo(
            f"cascade: {told.failed} queries failed, {rest}: {'; '.join(told.reasons)}. "
            f"{asked.journal} keeps what is done: run the same again to try what is left",
            err=True,
        )
