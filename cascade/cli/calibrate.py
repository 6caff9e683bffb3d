"""``cascade calibrate``."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest
from cascade.cli.options import channels_of, condition_of
from cascade.errors import ConfigError
from cascade.replay.queries import Roles
from cascade.replay.suited import check_finished
from cascade.replay.table import ScoreTable, read_table
from cascade.rollout.load import load_release, offline
from cascade.rollout.verify import verify
from cascade.rollout.words import depth_words
from cascade.types import ScoreSpace

if TYPE_CHECKING:
    from cascade.fit.calibrate import Asked
    from cascade.fit.fitted_depth import FittedDepth

__all__ = ["calibrate"]


def calibrate(
    small: Annotated[str, typer.Option("--small", help="Column of the small reranker.")],
    large: Annotated[str, typer.Option("--large", help="Column of the large reranker.")],
    out: Annotated[Path, typer.Option("--out", help="Where the calibration is written (JSON).")],
    table: Annotated[
        list[Path] | None, typer.Option("--table", help="Score table to fit on; repeat it for several.")
    ] = None,
    from_records: Annotated[
        list[Path] | None, typer.Option("--from-records", help="Decision records to fit on; repeat it for several.")
    ] = None,
    first_stage: Annotated[
        str, typer.Option("--first-stage", help="Columns of the first-stage channels, separated by commas.")
    ] = "",
    k: Annotated[int, typer.Option("--k", help="Length of the answer's head that counts: 1, 3, 5 or 10.")] = 10,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="COLUMN=VALUE: only these queries; repeat it for several.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Candidates that rerankers may score; unset means all.")
    ] = None,
    small_space: Annotated[
        ScoreSpace | None,
        typer.Option("--small-space", help="What the small scores are, where the table does not say."),
    ] = None,
    large_space: Annotated[
        ScoreSpace | None,
        typer.Option("--large-space", help="What the large scores are, where the table does not say."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of folds and resamples.")] = 0,
    allow_few: Annotated[
        bool, typer.Option("--allow-few", help="Go on with fewer than 100 queries, and say so in the calibration.")
    ] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Take a table that lacks queries which failed when it was collected.")
    ] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the reliability of it (PNG or SVG).")] = None,
    release: Annotated[
        Path | None, typer.Option("--release", help="Release to take over all but the escalation from.")
    ] = None,
    release_out: Annotated[
        Path | None, typer.Option("--release-out", help="Write the release that this calibration makes of it (YAML).")
    ] = None,
    target: Annotated[
        float, typer.Option("--target", help="Share of the difference that its price recovers: 0.8, 0.9, 0.95 or 0.98.")
    ] = 0.95,
    fit_depth: Annotated[
        bool,
        typer.Option("--fit-depth", help="Also fit how many candidates the small reranker scores, into the release."),
    ] = False,
    depth_price: Annotated[
        float | None,
        typer.Option("--depth-price", help="nDCG that one more candidate of --fit-depth must gain; unset: 0.0003."),
    ] = None,
) -> None:
    """Fit which candidates the large reranker would put on top, from its own scores; no labels are needed."""
    from cascade.fit.calibrate import Asked
    from cascade.fit.calibrate import calibrate as fit
    from cascade.rollout.fitted import fitted_release, write_release

    if (release is None) != (release_out is None):
        raise ConfigError("--release and --release-out go together")
    if fit_depth and release is None:
        raise ConfigError("--fit-depth: the depth goes into a release; name --release and --release-out")
    price = _price(depth_price, asked=fit_depth)
    _check_outputs(out, plot, release_out, target)
    conditions = dict(condition_of(each) for each in where or ())
    data = _data(table or [], from_records or [], unfinished=unfinished)
    for name, value in conditions.items():
        data = [each.where(name, value) for each in data]
    roles = Roles(tuple(channels_of(first_stage)), small, large, depth)
    asked = Asked(roles, k, small_space, large_space, conditions, seed, allow_few)
    console = Console(stderr=True)
    with console.status("fitting") as status:
        depths = None if release is None or price is None else _depths(data, asked, price, release)
        artefact = fit(data, asked, status.update)
    if depths is not None:
        deeper = () if artefact.benefit.status == "none-found" else (depths.deeper,)
        artefact = artefact.model_copy(update={"notes": (*artefact.notes, *depths.notes, *deeper)})
    written = artefact_bytes(artefact)
    _write(out, written)
    digest = artefact_digest(written)
    if plot is not None:
        from cascade.fit.plots import draw_reliability

        draw_reliability(artefact, plot)
    _tell(artefact, Console())
    typer.echo(f"calibration: {out}\n{digest}")
    if release is not None and release_out is not None:
        rule, history = (None, None) if depths is None else (depths.fit.rule, depths.fit.history)
        made = fitted_release(release, artefact, digest, target, depth=rule, history=history)
        told = write_release(release_out, made)
        typer.echo(f"release: {release_out}\n{told}")
        for finding in verify(release_out, os.environ).findings:
            typer.echo(f"release verify: {finding.severity}: {finding.what}")
        if rule is not None:
            typer.echo(f"depth {depth_words(rule)}")


def _check_outputs(out: Path, plot: Path | None, release_out: Path | None, target: float) -> None:
    """Refuse what would only fail after minutes of fitting. Raises ConfigError."""
    from cascade.fit.prices import TARGETS

    if target not in TARGETS:
        raise ConfigError(f"--target: {target:g} is none of {', '.join(f'{one:g}' for one in TARGETS)}")
    for name, path in (("--out", out), ("--plot", plot), ("--release-out", release_out)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{name} {path}: its folder is not there")
    if out.exists():
        raise ConfigError(f"--out {out}: is there already, and releases may name it; name another file")


def _price(given: float | None, *, asked: bool) -> float | None:
    """Return the price of a depth, None where no depth is to be fitted."""
    from cascade.fit.fitted_depth import DEPTH_PRICE

    if given is not None and not asked:
        raise ConfigError("--depth-price goes with --fit-depth")
    if given is not None and not 0.0 <= given < math.inf:
        raise ConfigError("--depth-price: a number of at least 0 is wanted")
    if not asked:
        return None
    return DEPTH_PRICE if given is None else given


def _depths(tables: list[ScoreTable], asked: Asked, price: float, release: Path) -> FittedDepth:
    """Fit a depth that the release's limits allow."""
    from cascade.fit.fitted_depth import fitted_depth

    most = load_release(release, offline({})).release.limits.max_candidates
    return fitted_depth(tables, asked.roles, asked.k, price, most, asked.seed)


def _data(tables: list[Path], records: list[Path], *, unfinished: bool) -> list[ScoreTable]:
    if bool(tables) == bool(records):
        raise ConfigError("name either --table or --from-records")
    if tables:
        read = [read_table(table) for table in tables]
        for path, table in zip(tables, read, strict=True):
            check_finished(path.name, table.conditions, allowed=unfinished)
        return read
    from cascade.replay.from_records import table_from_records

    return [table_from_records(records)]


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {type(error).__name__}") from None


def _tell(artefact: CalibrationArtefact, console: Console) -> None:
    trained = artefact.trained_on
    console.print(f"{trained.queries} queries, {artefact.small.name} -> {artefact.large.name}, k = {artefact.k}")
    benefit = artefact.benefit
    if benefit.mean is None:
        console.print("does the large stage help: not shown, there are no judgements")
    else:
        console.print(
            f"does the large stage help: {benefit.status}, {benefit.metric} {benefit.mean:+.4f}"
            f" [{_number(benefit.low)}, {_number(benefit.high)}] on {benefit.queries} queries"
        )
    rows = Table("prefix", "top", "pairs", "Brier", "ECE", "floor", title="Reliability, cross-fitted")
    for row in artefact.reliability:
        if row.query_class == "all":
            rows.add_row(
                str(row.prefix), str(row.cutoff), str(row.pairs),
                f"{row.brier:.4f}", f"{row.ece:.4f}", f"{row.ece_floor:.4f}",
            )  # fmt: skip
    console.print(rows)
    prices = Table("target", "recovers", "95% interval", "price a pair", "large share", "judged by")
    prices.title = "Prices, cross-fitted"
    for point in artefact.prices:
        ends = " to ".join("none" if end is None else f"{end:.3f}" for end in (point.low, point.high))
        prices.add_row(
            f"{point.target:g}", f"{point.recovered:.3f}", ends, f"{point.price:.3g}", f"{point.large_share:.3f}",
            point.judged_by,
        )  # fmt: skip
    console.print(prices)
    for note in artefact.notes:
        console.print(note)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:+.4f}"
