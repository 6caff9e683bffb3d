"""``cascade off-policy``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from cascade.cli.off_policy_releases import arm_of, calibrations_of, decider_of, told_of
from cascade.cli.off_policy_summary import summary_of
from cascade.errors import ConfigError
from cascade.replay.logged.outcomes import read_outcomes
from cascade.replay.logged.report import Asked, RewardModel, off_policy_report

__all__ = ["off_policy"]

_REFUSED: Final = 1


def off_policy(
    records: Annotated[list[Path], typer.Option("--records", help="File of decision records; repeat it for several.")],
    release: Annotated[Path, typer.Option("--release", help="Release that is asked about: the target.")],
    out: Annotated[Path, typer.Option("--out", help="Where the report is written (JSON).")],
    more_records: Annotated[list[Path] | None, typer.Argument(help="More files of decision records.")] = None,
    outcomes: Annotated[
        list[Path] | None,
        typer.Option("--outcomes", help='Lines of {"decision_id": …, "reward": …}; repeat it for several files.'),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            help="RELEASE=SHARE: a release of the random split that made the records, and its share. Without shares: "
            "the stable release and its canary, whose shares the records tell.",
        ),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        typer.Option("--calibration", help="Calibration that a release names; repeat it for several."),
    ] = None,
    without_outcome: Annotated[
        float | None,
        typer.Option("--without-outcome", help="Reward of a decision that no outcome names; unset: it is left out."),
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Cut-off of nDCG, for records of mode observe.")] = 10,
    dr: Annotated[bool, typer.Option("--dr/--no-dr", help="Doubly robust estimates; they fit a reward model.")] = True,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of the resamples and of the model's folds.")
    ] = 0,
    resamples: Annotated[
        int, typer.Option("--resamples", min=1000, max=100_000, help="Resamples of the queries, for intervals.")
    ] = 2000,
) -> None:
    """Tell from decision records, without judgements, what another release would have answered, earned and cost.

    Exits with 1 where outcomes were given and the records do not support an estimate of the target's reward.
    """
    if without_outcome is not None and (outcomes is None or not math.isfinite(without_outcome)):
        raise ConfigError("--without-outcome: a finite number is wanted, and --outcomes")
    calibrations = calibrations_of(calibration or [])
    loaded, target = decider_of(release, calibrations)
    asked = Asked(
        records=[*records, *(more_records or [])],
        target=target,
        target_told=told_of(loaded),
        arms=[arm_of(written, calibrations) for written in arm or []],
        outcomes=None if outcomes is None else read_outcomes(outcomes),
        without_outcome=without_outcome,
        k=k,
        resamples=resamples,
        seed=seed,
        model=_model() if dr and arm else None,
    )
    told = off_policy_report(asked)
    try:
        out.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {type(error).__name__}") from None
    for line in summary_of(told):
        typer.echo(line)
    typer.echo(f"report: {out}")
    if told["reward"] is not None and told["reward"]["refused"]:
        raise typer.Exit(_REFUSED)


def _model() -> RewardModel:
    from cascade.fit.reward import predicted_rewards

    return predicted_rewards
