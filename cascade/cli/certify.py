"""``cascade certify``."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer
from rich.console import Console

from cascade import __version__
from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.calibration.certificate import Certificate, certificate_bytes, certificate_digest
from cascade.cli.certify_base import Base
from cascade.cli.certify_options import Families, families_of, mix_of, shares_of
from cascade.cli.certify_told import refuse, tell, tell_path
from cascade.cli.eval_policy import load_calibration
from cascade.cli.options import channels_of, condition_of
from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.policy.release import policy_digest
from cascade.replay.queries import Roles
from cascade.replay.table import ScoreTable, read_table
from cascade.rollout.fitted import write_release
from cascade.statistics.betting import Bets
from cascade.types import ScoreSpace

if TYPE_CHECKING:
    from cascade.fit.certify.run import Outcome

__all__ = ["certify"]


def certify(
    table: Annotated[list[Path], typer.Option("--table", help="Score table; repeat it for several, which are pooled.")],
    small: Annotated[str, typer.Option("--small", help="Column of the small reranker.")],
    large: Annotated[str, typer.Option("--large", help="Column of the large reranker.")],
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="Greatest mean loss of nDCG@k against always-large, for example 0.01.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Where the certificate is written (JSON), if there is one.")],
    delta: Annotated[float, typer.Option("--delta", help="Greatest probability that the certificate is wrong.")] = 0.1,
    first_stage: Annotated[
        str, typer.Option("--first-stage", help="Columns of the first-stage channels, separated by commas.")
    ] = "",
    k: Annotated[int, typer.Option("--k", min=1, help="Cut-off of nDCG.")] = 10,
    gain: Annotated[Gain, typer.Option("--gain", help="What a grade is worth in nDCG.")] = Gain.LINEAR,
    contract: Annotated[
        Literal["gold", "silver"],
        typer.Option("--contract", help="Lose by judgements, or (silver) by the large order alone, without labels."),
    ] = "gold",
    sided: Annotated[
        Literal["two", "one"],
        typer.Option("--sided", help="two: gains offset harm. one: only harm counts, which is stricter."),
    ] = "two",
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Fitted calibration; the queries that trained it are left out."),
    ] = None,
    calibration_out: Annotated[
        Path | None,
        typer.Option("--calibration-out", help="Where a calibration that is fitted here goes; unset: beside --out."),
    ] = None,
    family: Annotated[
        Families, typer.Option("--family", help="Rules that the path is made of, where no release is named.")
    ] = "calibrated",
    release: Annotated[
        Path | None,
        typer.Option("--release", help="Certify this release as it is; with --release-out at a threshold of the path."),
    ] = None,
    release_out: Annotated[
        Path | None,
        typer.Option("--release-out", help="Write the release at the certified threshold, naming the certificate."),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(
            "--shares",
            help="Shares of queries that fit, choose and certify; unset: 0.6,0,0.4 where a calibration is fitted, else 0,0.3,0.7.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="COLUMN=VALUE: only these queries; repeat it for several.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Candidates that rerankers may score; unset means all.")
    ] = None,
    levels_served: Annotated[
        str | None,
        typer.Option("--levels-served", help="LEVEL=SHARE,...: what serves beside the policy; they sum to 1."),
    ] = None,
    fallback_rate: Annotated[
        float | None, typer.Option("--fallback-rate", help="Bound on the share of answers that fall back, as told.")
    ] = None,
    fallbacks: Annotated[
        str | None, typer.Option("--fallbacks", help="X/N: counted fallbacks, of which the bound is worked out.")
    ] = None,
    fallback_answer: Annotated[
        Literal["first-stage", "small"], typer.Option("--fallback-answer", help="The order that a fallback serves.")
    ] = "first-stage",
    bets: Annotated[Bets, typer.Option("--bets", help="How the betting bound bets.")] = Bets.STAR,
    attempts: Annotated[
        Path | None, typer.Option("--attempts", help="Log of attempts; unset: attempts.jsonl beside --out.")
    ] = None,
    small_space: Annotated[
        ScoreSpace | None,
        typer.Option("--small-space", help="What the small scores are, where the table does not say."),
    ] = None,
    large_space: Annotated[
        ScoreSpace | None,
        typer.Option("--large-space", help="What the large scores are, where the table does not say."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the parts and of the order of testing.")] = 0,
) -> None:
    """Certify that a policy loses at most epsilon, with confidence 1 - delta, on queries that nothing else saw."""
    from cascade.fit.certify.asked import Asked
    from cascade.fit.certify.run import Supplied
    from cascade.fit.certify.run import certify as run

    _check(epsilon, delta, release, release_out)
    _check_outputs(out, calibration_out, release_out)
    conditions = tuple(where or ())
    asked = Asked(
        Roles(tuple(channels_of(first_stage)), small, large, depth), epsilon, delta, k, gain, contract, sided,
        families_of(family, released=release is not None), shares_of(shares), bets, seed,
        mix_of(levels_served, fallback_rate, fallbacks, release), fallback_answer, small_space, large_space, conditions,
    )  # fmt: skip
    fitted = None if calibration is None else load_calibration(calibration)
    base = None if release is None else Base.of(release, fitted, as_is=release_out is None)
    given = Supplied(
        log=attempts or out.with_name("attempts.jsonl"),
        versions=_versions(),
        calibration=fitted,
        release=None if base is None else base.policy,
        alone=base is not None and base.as_is,
        levels={} if base is None else base.levels,
        digest_of=(lambda rule: None) if base is None else base.digest,
    )
    with Console(stderr=True).status("reading") as status:
        done = run(_tables(table, conditions), asked, given, status.update)
    console = Console()
    tell_path(done, console)
    if done.certificate is None:
        refuse(done, asked)
    calibration_at = calibration_out or out.with_suffix(".calibration.json")
    _finish(done, done.certificate, out, calibration_at, base, release_out, console)


def _check(epsilon: float, delta: float, release: Path | None, release_out: Path | None) -> None:
    if not 0.0 < epsilon < 1.0:
        raise ConfigError("--epsilon: a mean loss above 0 and below 1 is wanted")
    if not 0.0 < delta < 1.0:
        raise ConfigError("--delta: a probability above 0 and below 1 is wanted")
    if release_out is not None and release is None:
        raise ConfigError("--release-out: name the release to take over all but the threshold from, with --release")


def _check_outputs(out: Path, calibration_out: Path | None, release_out: Path | None) -> None:
    for name, path in (("--out", out), ("--calibration-out", calibration_out), ("--release-out", release_out)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{name} {path}: its folder is not there")
    if out.exists():
        raise ConfigError(f"--out {out}: is there already, and releases may name it; name another file")


def _tables(paths: list[Path], conditions: tuple[str, ...]) -> list[ScoreTable]:
    tables = [read_table(path) for path in paths]
    for written in conditions:
        name, value = condition_of(written)
        tables = [each.where(name, value) for each in tables]
    return tables


def _versions() -> dict[str, str]:
    return {
        "cascade": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": version("scikit-learn"),
    }


def _finish(
    done: Outcome,
    certificate: Certificate,
    out: Path,
    calibration_out: Path,
    base: Base | None,
    release_out: Path | None,
    console: Console,
) -> None:
    """Write what was certified: the calibration first, so that nothing names what is not there."""
    if done.fitted is not None:
        fitted = artefact_bytes(done.fitted)
        _write("--calibration-out", calibration_out, fitted)
        typer.echo(f"calibration: {calibration_out}\n{artefact_digest(fitted)}")
    data = certificate_bytes(certificate)
    _write("--out", out, data)
    tell(certificate, console)
    typer.echo(f"certificate: {out}\n{certificate_digest(data)}")
    if base is not None and release_out is not None:
        written = base.written(certificate.policy.escalation)
        evidence = dict(written.get("evidence") or {})
        if policy_digest(written) != base.loaded.policy_digest:  # a report speaks of one policy
            evidence.pop("report", None)
        written["evidence"] = {**evidence, "certificate": certificate_digest(data)}
        typer.echo(f"release: {release_out}\n{write_release(release_out, written)}")
        folders = [(release_out.parent / name).resolve() for name in ("calibration", "artifacts")]
        if out.parent.resolve() not in folders:
            typer.echo(
                "the release names the certificate: put it into calibration/ beside the release, where it is looked for"
            )


def _write(option: str, path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be written: {type(error).__name__}") from None
