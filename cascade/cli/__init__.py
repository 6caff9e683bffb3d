"""The command line. Each command is a module; nothing is decided here."""

from __future__ import annotations

import sys

import typer

from cascade import __version__
from cascade.cli import calibrate, collect, config, doctor, example, keys, release, rerank, rollout, serve, weights
from cascade.cli.capacity import capacity
from cascade.cli.certify import certify
from cascade.cli.eval import evaluate_tables
from cascade.cli.explain import explain
from cascade.cli.off_policy import off_policy
from cascade.cli.parity import parity
from cascade.cli.tune import tune
from cascade.errors import CascadeError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Rerank in time and in full."
)
app.command("serve")(serve.serve)
app.command("rerank")(rerank.rerank)
app.command("collect")(collect.collect)
app.command("calibrate")(calibrate.calibrate)
app.command("eval")(evaluate_tables)
app.command("certify")(certify)
app.command("off-policy")(off_policy)
app.command("parity")(parity)
app.command("tune")(tune)
app.command("capacity")(capacity)
app.command("explain")(explain)
app.command("doctor")(doctor.doctor)
config.app.command("example")(example.example)
app.add_typer(config.app, name="config")
app.add_typer(keys.app, name="keys")
app.add_typer(release.app, name="release")
app.add_typer(rollout.app, name="rollout")
app.add_typer(weights.app, name="weights")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit status 2."""
    try:
        app()
    except CascadeError as error:
        typer.echo(f"cascade: {error}", err=True)
        sys.exit(2)
