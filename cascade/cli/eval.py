"""``cascade eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from cascade.cli.eval_policy import load_calibration, policy_of_calibration, policy_of_release
from cascade.cli.eval_summary import print_summary, queries_shown
from cascade.cli.options import channels_of, condition_of
from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.replay.evaluate import Question, evaluate
from cascade.replay.queries import Roles
from cascade.replay.report import report
from cascade.replay.sweep import Metric
from cascade.replay.table import read_table

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
        float, typer.Option("--price", min=0.0, help="What a pair at the large stage costs, in units of the metric.")
    ] = 0.0005,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the resamples.")] = 0,
    resamples: Annotated[
        int, typer.Option("--resamples", min=1000, max=100_000, help="Resamples of the queries, for intervals.")
    ] = 2000,
) -> None:
    """Replay policies on score tables, without calling a model, and tell what each loses and saves."""
    names = [path.name for path in table]
    if len(set(names)) < len(names):
        raise ConfigError("--table: two tables have the same file name")
    question = Question(
        Roles(tuple(channels_of(first_stage)), small, large, depth),
        k,
        gain,
        metric,
        price,
        seed,
        resamples,
        tuple(condition_of(each) for each in where or ()),
    )
    tables = {path.name: read_table(path) for path in table}
    fitted = None if calibration is None else load_calibration(calibration)
    chosen = None if fitted is None else policy_of_calibration(fitted, k)
    if release is not None:
        chosen = policy_of_release(release, fitted)
    with queries_shown() as progress:
        done = evaluate(tables, question, fitted, chosen, progress)
    told = report(done)
    try:
        out.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {type(error).__name__}") from None
    print_summary(told, Console())
    typer.echo(f"report: {out}")
