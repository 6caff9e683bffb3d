"""The command line. Each command is a module, imported when it is asked for; nothing is decided here."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import typer
import typer.core
import typer.main

from cascade import __version__
from cascade.errors import CascadeError

__all__ = ["app", "main"]

_COMMANDS: Final = {
    "serve": ("serve:serve", "Serve rerank requests until SIGTERM or SIGINT."),
    "rerank": ("rerank:rerank", "Rerank one request, JSON in the native format on stdin, and print the answer."),
    "collect": (
        "collect:collect",
        "Score the candidates of a collection's queries with a release's stages, into a score table.",
    ),
    "calibrate": (
        "calibrate:calibrate",
        "Fit which candidates the large reranker would put on top, from its own scores; no labels are needed.",
    ),
    "eval": (
        "eval:evaluate_tables",
        "Replay policies on score tables, without calling a model, and tell what each loses and saves.",
    ),
    "certify": (
        "certify:certify",
        "Certify that a policy loses at most epsilon, with confidence 1 - delta, on queries that nothing else saw.",
    ),
    "off-policy": (
        "off_policy:off_policy",
        "Tell from decision records, without judgements, what another release would have answered, earned and cost.",
    ),
    "parity": (
        "parity:parity",
        "Tell whether CAND scores as REF does: another engine, precision, version or model in place of one that is known.",
    ),
    "tune": (
        "tune:tune",
        "Choose threads, batches and precision of an embedded stage on this machine, for your own lengths.",
    ),
    "capacity": (
        "capacity:capacity",
        "Plan replicas of each stage for a workload, at every level of a release, with headroom. No server is asked.",
    ),
    "explain": (
        "explain:explain",
        "Say why a request was decided as it was: depth, action, estimates, rounds, trouble, and the shadow beside it.",
    ),
    "doctor": (
        "doctor:doctor",
        "Examine the stages of a release, certificates and the score cache: what serves them, whether it scores right, how fast, what to change.",
    ),
    "config": ("config:app", "Check and show settings and the release."),
    "keys": ("keys:app", "Make API keys, and check a file of them."),
    "release": ("release:app", "Pack, sign, show, check and compare releases."),
    "rollout": ("rollout:app", "Roll a release out at a running sidecar, step by step, and see how it stands."),
    "weights": ("weights:app", "Make other forms of a cross-encoder's weights."),
}
"""Where each command is, below this package, and what its help begins with."""


class _Commands(typer.core.TyperGroup):
    """Import a command's module when it is called: the list of commands needs none."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else _imported(name), rest


def _imported(name: str) -> Any:
    module, _, attribute = _COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"{__name__}.{module}"), attribute)
    holder = typer.Typer()
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Rerank in time and in full.",
)
for _name, (_, _told) in _COMMANDS.items():
    app.command(_name, help=_told)(lambda: None)


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
        from cascade.cli.rollout_words import plain

        typer.echo(plain(f"cascade: {error}"), err=True)  # a release may have put anything into its names
        sys.exit(2)
