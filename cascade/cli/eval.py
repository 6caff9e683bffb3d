"""``cascade eval``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from cascade.cli.eval_economics import (
    DeadlineMs,
    Devices,
    MsPerCall,
    MsPerPair,
    PricePerHour,
    Utilisation,
    terms_of,
)
from cascade.cli.eval_pages import Html, Png, check_places, write_pages
from cascade.cli.eval_policy import load_calibration, policies_of_release, policy_of_calibration
from cascade.cli.eval_summary import print_summary, queries_shown
from cascade.cli.eval_workers import workers_of
from cascade.cli.options import channels_of, condition_of
from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.policy.levels import NORMAL
from cascade.replay.evaluate import PARTITION_QUERIES, Question, evaluate
from cascade.replay.policy import Policy
from cascade.replay.queries import Roles
from cascade.replay.report import report
from cascade.replay.source import source_on_disk
from cascade.replay.sweep import Metric

__all__ = ["evaluate_tables"]


def evaluate_tables(
    table: Annotated[list[Path], typer.Option("--table", help="Score table; repeat it for several.")],
    small: Annotated[str, typer.Option("--small", help="Column of the small reranker.")],
    large: Annotated[str, typer.Option("--large", help="Column of the large reranker.")],
    out: Annotated[Path, typer.Option("--out", help="Where report.json is written.")],
    first_stage: Annotated[
        str, typer.Option("--first-stage", help="Columns of the first-stage channels, separated by commas.")
    ] = "",
    k: Annotated[int, typer.Option("--k", min=1, help="Cut-off of nDCG, recall and hit.")] = 10,
    metric: Annotated[Metric, typer.Option("--metric", help="What curves and regret are of.")] = Metric.NDCG,
    gain: Annotated[Gain, typer.Option("--gain", help="What a grade is worth in nDCG.")] = Gain.LINEAR,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="COLUMN=VALUE: only these queries; repeat it for several.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Fitted calibration: adds static-fused and the policy.")
    ] = None,
    release: Annotated[
        Path | None, typer.Option("--release", help="Release whose depth and escalation are the policy.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Candidates that rerankers may score; unset means all.")
    ] = None,
    price: Annotated[
        float,
        typer.Option("--price", min=0.0, max=1.0, help="What a pair at the large stage costs, in units of the metric."),
    ] = 0.0005,
    support_tokens: Annotated[
        int | None,
        typer.Option(
            "--support-tokens", min=1, help="Tokens an answer reads: adds how often they hold a relevant one."
        ),
    ] = None,
    ms_per_pair: MsPerPair = "",
    ms_per_call: MsPerCall = 0.0,
    deadline_ms: DeadlineMs = None,
    price_per_hour: PricePerHour = "",
    utilisation: Utilisation = 0.6,
    device: Devices = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Take a table that lacks queries which failed when it was collected.")
    ] = False,
    partition_queries: Annotated[
        int,
        typer.Option("--partition-queries", min=1, help="Queries that are replayed, and held in memory, at a time."),
    ] = PARTITION_QUERIES,
    workers: Annotated[
        str | None, typer.Option("--workers", help="ray, or ray:N for N local workers. Unset: this process.")
    ] = None,
    html: Html = None,
    png: Png = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of the resamples.")] = 0,
    resamples: Annotated[
        int, typer.Option("--resamples", min=1000, max=100_000, help="Resamples of the queries, for intervals.")
    ] = 2000,
) -> None:
    """Replay policies on score tables, without calling a model, and tell what each loses and saves."""
    names = [path.name for path in table]
    if len(set(names)) < len(names):
        raise ConfigError("--table: two tables have the same file name")
    check_places(out, html, png, table)
    question = Question(
        Roles(tuple(channels_of(first_stage)), small, large, depth),
        k,
        gain,
        metric,
        price,
        seed,
        resamples,
        tuple(condition_of(each) for each in where or ()),
        support_tokens,
        unfinished,
    )
    running = workers_of(workers)
    tables = {path.name: source_on_disk(path, question.roles, question.where) for path in table}
    fitted = None if calibration is None else load_calibration(calibration)
    levels: Mapping[str, Policy | None] = {} if fitted is None else {NORMAL: policy_of_calibration(fitted, k)}
    if release is not None:
        of_release = policies_of_release(release, fitted)
        levels = of_release.levels
        deadline_ms = of_release.deadline_ms if deadline_ms is None else deadline_ms
        if next(iter(levels.values())) is None:
            raise ConfigError(f"release {release}: it asks no stage, so there is nothing to replay")
    terms = terms_of(
        ms_per_pair=ms_per_pair,
        ms_per_call=ms_per_call,
        deadline_ms=deadline_ms,
        price_per_hour=price_per_hour,
        utilisation=utilisation,
        devices=device or (),
    )
    with running as run, queries_shown() as advance:
        done = evaluate(
            tables,
            question,
            fitted,
            next(iter(levels.values()), None),
            at_levels=levels,
            terms=terms,
            run=run,
            partition_queries=partition_queries,
            advance=advance,
        )
    told = report(done)
    written = orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        out.write_bytes(written)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {type(error).__name__}") from None
    print_summary(told, Console())
    typer.echo(f"report: {out}\nsha256:{hashlib.sha256(written).hexdigest()}")
    for line in write_pages(told, html, png):
        typer.echo(line)
