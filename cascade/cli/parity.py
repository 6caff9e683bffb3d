"""``cascade parity``."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer
from rich.console import Console

from cascade.cli.options import ConfigFile, check_out, settings_from, write_out
from cascade.cli.parity_pairs import Wanted, gathered_pairs, spaces_of, window_of
from cascade.cli.parity_sides import open_sides
from cascade.cli.parity_summary import print_parity, progress_shown
from cascade.parity.assemble import Question
from cascade.parity.comparison import Comparison
from cascade.parity.costs import resident_bytes
from cascade.parity.gather import Gathered
from cascade.parity.live import Live, Progress
from cascade.parity.report import parity_report
from cascade.parity.run import Surroundings, run_parity
from cascade.parity.sides import parse_side
from cascade.parity.sources import Source
from cascade.parity.spaces import Spaces
from cascade.parity.tolerances import Tolerances, checks
from cascade.stages.engine.workers import worker_pool
from cascade.telemetry.logs import configure_logging
from cascade.types import ScoreSpace

__all__ = ["parity"]

_OUTSIDE: Final = 1
_DEFAULTS: Final = Tolerances()


def parity(
    ref: Annotated[str, typer.Argument(help="TABLE.parquet#COLUMN, RELEASE.yaml#STAGE or ADAPTER+http://HOST:PORT.")],
    cand: Annotated[str, typer.Argument(help="What is held against it, written likewise.")],
    out: Annotated[Path | None, typer.Option(help="Where parity.json is written.")] = None,
    dataset: Annotated[Path | None, typer.Option(help="Folder in BEIR's layout whose pairs are scored.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="File of judgements in place of the dataset's own.")] = None,
    queries: Annotated[
        int | None, typer.Option(min=1, help="How many queries, the same ones every time; unset: 50, of tables all.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=2, help="Candidates a query in first-stage order; unset: 30, of tables all.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Cut-off of overlap and nDCG.")] = 10,
    runs: Annotated[
        int, typer.Option(min=1, help="How often everything is scored; at least 3 where equal calls differ.")
    ] = 1,
    ref_space: Annotated[ScoreSpace | None, typer.Option(help="What the scores of a table at REF are.")] = None,
    cand_space: Annotated[ScoreSpace | None, typer.Option(help="What the scores of a table at CAND are.")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=8, help="Longest pair in tokens; unset: the shorter one that the sides declare.")
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(min=0.0, help="Largest error; unset: .1 logits, .02 of a probability, .01 cosine.")
    ] = _DEFAULTS.max_error,
    max_mean_error: Annotated[
        float | None, typer.Option(min=0.0, help="Mean absolute error; unset: a quarter of the largest.")
    ] = _DEFAULTS.max_mean_error,
    min_pearson: Annotated[float, typer.Option(help="Least correlation.")] = _DEFAULTS.min_pearson,
    min_kendall: Annotated[float, typer.Option(help="Least mean tau within queries.")] = _DEFAULTS.min_kendall,
    min_overlap: Annotated[float, typer.Option(help="Least mean overlap of the top k.")] = _DEFAULTS.min_overlap,
    max_large_flips: Annotated[
        float, typer.Option(min=0.0, help="Share of orders turned round where REF is half a deviation apart or more.")
    ] = _DEFAULTS.max_large_flips,
    max_ndcg_loss: Annotated[
        float, typer.Option(min=0.0, help="Loss of nDCG that the 95% interval must rule out.")
    ] = _DEFAULTS.max_ndcg_loss,
    max_jitter: Annotated[
        float | None, typer.Option(min=0.0, help="How far CAND's scores may move; unset: as the largest error.")
    ] = _DEFAULTS.max_jitter,
    max_missing: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of pairs that only one side may have.")
    ] = _DEFAULTS.max_missing,
    max_contrast_lost: Annotated[
        int, typer.Option(min=0, help="Contrast pairs that REF has right and CAND may have wrong.")
    ] = _DEFAULTS.max_contrast_lost,
    max_token_mismatch: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of pairs or calls that may be read as other tokens.")
    ] = _DEFAULTS.max_token_mismatch,
    resamples: Annotated[int, typer.Option(min=1000, max=100_000, help="Resamples of the queries.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the resamples.")] = 0,
    allow_few: Annotated[bool, typer.Option("--allow-few", help="Go on with fewer than 10 queries.")] = False,
    config: ConfigFile = None,
) -> None:
    """Tell whether CAND scores as REF does: another engine, precision, version or model in place of one that is known.

    Exits with 0 where every limit that could be measured is kept, with 1 where one is not.
    """
    configure_logging("error", sys.stderr.buffer)
    if out is not None:
        check_out(out)
    limits = Tolerances(
        max_error,
        max_mean_error,
        min_pearson,
        min_kendall,
        min_overlap,
        max_large_flips,
        max_ndcg_loss,
        max_jitter,
        max_missing,
        max_contrast_lost,
        max_token_mismatch,
    )
    written = parse_side("REF", ref), parse_side("CAND", cand)
    threads = settings_from(config).embedded_threads
    pool = worker_pool(threads)
    try:
        sides = open_sides(*written, lambda: pool)
        window = window_of(*sides, max_length)
        spaces = spaces_of(*sides, ref_space, cand_space)
        pairs_from, gathered = gathered_pairs(*sides, Wanted(dataset, qrels, queries, depth, window))
        question = Question(k, runs, window, resamples, seed, allow_few)
        with progress_shown() as progress:
            found = asyncio.run(_run(*sides, gathered, spaces, question, progress))
    finally:
        pool.close()
    report = parity_report(found, checks(found, limits), question, pairs_from)
    if out is not None:
        write_out(out, orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    print_parity(report, Console())
    if not report["passed"]:
        raise typer.Exit(_OUTSIDE)


async def _run(
    ref: Source | Live,
    cand: Source | Live,
    gathered: Gathered | None,
    spaces: Spaces,
    question: Question,
    progress: Progress,
) -> Comparison:
    try:
        around = Surroundings(time.monotonic, resident_bytes, progress)
        return await run_parity(ref, cand, gathered, spaces, question, around)
    finally:
        stages = [side.stage for side in (ref, cand) if isinstance(side, Live)]
        await asyncio.gather(*(stage.aclose() for stage in stages), return_exceptions=True)
