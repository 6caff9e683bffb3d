"""``cascade release diff``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from cascade.cli.eval_policy import policy_of_release
from cascade.cli.options import channels_of, condition_of, settings_from
from cascade.cli.release_diff_told import lines_of
from cascade.cli.rollout_words import plain
from cascade.errors import ConfigError
from cascade.metrics import Gain
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.diff import differences, rollout_differences
from cascade.rollout.load import offline
from cascade.rollout.scored_by import not_scored_by
from cascade.server.reading import nameable

__all__ = ["diff"]

_Release = Annotated[Path, typer.Argument(help="A release in YAML, or a bundle: a folder or a .tar.")]


def diff(
    one: _Release,
    other: _Release,
    table: Annotated[
        list[Path] | None,
        typer.Option(
            "--table", help="Score table that both are replayed on; repeat it for several.", show_default=False
        ),
    ] = None,
    small: Annotated[
        str | None, typer.Option("--small", help="Column of the small reranker.", show_default=False)
    ] = None,
    large: Annotated[
        str | None, typer.Option("--large", help="Column of the large reranker.", show_default=False)
    ] = None,
    first_stage: Annotated[
        str, typer.Option("--first-stage", help="Columns of the first-stage channels, separated by commas.")
    ] = "",
    k: Annotated[int, typer.Option("--k", min=1, help="Cut-off of nDCG and of what counts as the top.")] = 10,
    gain: Annotated[Gain, typer.Option("--gain", help="What a grade is worth in nDCG.")] = Gain.LINEAR,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="COLUMN=VALUE: only these queries; repeat it for several.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Candidates that rerankers may score; unset means all.")
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Take a table that lacks queries which failed when it was collected.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of the resamples.")] = 0,
    resamples: Annotated[
        int, typer.Option("--resamples", min=1000, max=100_000, help="Resamples of the queries, for intervals.")
    ] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Say what changes for traffic from one release to another, and with --table what that gains and costs there.

    Exit status: 0 nothing does, 1 something does, 2 one of them is no release or cannot be replayed.
    """
    environment = offline(nameable(settings_from(None), os.environ))
    bundles = [load_bundle(path, environment) for path in (one, other)]
    replayed = None
    if table:
        if small is None or large is None:
            raise ConfigError("--table: name its columns with --small and --large")
        roles = {"first_stage": tuple(channels_of(first_stage)), "small": small, "large": large, "depth": depth}
        asked = {"k": k, "gain": gain, "seed": seed, "resamples": resamples, "unfinished": unfinished}
        chosen = tuple(condition_of(each) for each in where or ())
        replayed = _replayed([one, other], bundles, table, roles, {**asked, "where": chosen})
    changes = differences(*bundles)
    told = {
        **{name: _named(bundle) for name, bundle in zip(("before", "after"), bundles, strict=True)},
        "changes": changes,
        "rollout": rollout_differences(*bundles),
        "replay": replayed,
    }
    if as_json:
        typer.echo(orjson.dumps(told, option=orjson.OPT_INDENT_2))
    else:
        for line in lines_of(told):
            typer.echo(plain(line))
    if changes:
        raise typer.Exit(1)


def _named(bundle: Bundle) -> dict[str, str]:
    loaded = bundle.loaded
    return {"release": loaded.release.release, "digest": loaded.digest, "policy_digest": loaded.policy_digest}


def _replayed(
    paths: list[Path], bundles: list[Bundle], tables: list[Path], roles: dict[str, Any], asked: dict[str, Any]
) -> dict[str, Any]:
    """Replay both releases on the tables. Raises ConfigError for what cannot be replayed."""
    from cascade.replay.paired import paired
    from cascade.replay.queries import Roles
    from cascade.replay.question import Question
    from cascade.replay.source import source_on_disk

    names = [path.name for path in tables]
    if len(set(names)) < len(names):
        raise ConfigError("--table: two tables have the same file name")
    policies = []
    for path, bundle in zip(paths, bundles, strict=True):
        if bundle.fault is not None:
            raise ConfigError(f"release {path}: {bundle.fault}")
        policies.append(policy_of_release(path, bundle.calibration))
    question = Question(Roles(**roles), **asked)
    sources = {path.name: source_on_disk(path, question.roles, question.where) for path in tables}
    told = paired(sources, question, policies[0], policies[1])
    columns = {"small": question.roles.small, "large": question.roles.large}
    warnings = [
        f"table {name}: release {bundle.loaded.release.release}: {sentence}"
        for name, source in sources.items()
        for bundle in bundles
        for sentence in not_scored_by(bundle.loaded.release, source.conditions, columns)
    ]
    return {**told, "warnings": list(dict.fromkeys(warnings))}
