"""``cascade rollout``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console, RenderableType
from rich.text import Text

from cascade.cli.rollout_admin import Admin, AdminTls, TurnedDown, admin_of
from cascade.cli.rollout_tables import status_view
from cascade.cli.rollout_told import foreseen_view, history_view
from cascade.cli.rollout_watch import TimeOver
from cascade.cli.rollout_watch import wait as wait_for
from cascade.cli.rollout_watch import watch as watch_status
from cascade.cli.rollout_words import headline, state_of
from cascade.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Roll a release out at a running sidecar, step by step, and see how it stands. "
    "Exit status: 0 done, 1 the sidecar refused, 2 bad input or no answer, 3 `wait` had no time left.",
)

_Address = Annotated[
    str | None,
    typer.Option(
        "--admin",
        envvar="CASCADE_ADMIN_URL",
        help="Address of the admin listener. Unset: that of the settings in the environment, http://127.0.0.1:8788.",
        show_default=False,
    ),
]
_KeyEnv = Annotated[
    str | None, typer.Option("--key-env", help="Variable that holds the admin key.", show_default=False)
]
_KeyFile = Annotated[Path | None, typer.Option("--key-file", help="File that holds the admin key.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_OPTIONS: Final = orjson.OPT_INDENT_2
_TLS: Final = ContextVar[AdminTls | None]("TLS of the admin listener", default=None)
"""What stands before the name of a command, for the command."""


@app.callback()
def _reached(
    ca_file: Annotated[
        Path | None,
        typer.Option(
            envvar="CASCADE_ADMIN_CA_FILE",
            help="PEM file of the authorities of an https listener. Unset: the system's.",
            show_default=False,
        ),
    ] = None,
    certificate_file: Annotated[
        Path | None,
        typer.Option(
            envvar="CASCADE_ADMIN_CERTIFICATE_FILE",
            help="PEM file of the certificate for a listener that asks for one.",
            show_default=False,
        ),
    ] = None,
    certificate_key_file: Annotated[
        Path | None,
        typer.Option(envvar="CASCADE_ADMIN_CERTIFICATE_KEY_FILE", help="PEM file of its key.", show_default=False),
    ] = None,
) -> None:
    _TLS.set(AdminTls(ca_file, certificate_file, certificate_key_file))


@app.command()
def start(
    release: Annotated[
        str,
        typer.Argument(
            help="Digest or name of a release that the sidecar has, or the path of a bundle to hand over: "
            "a .tar, or a folder written with a slash."
        ),
    ],
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Give it all traffic after its activation, without steps.")
    ] = False,
    lenient: Annotated[
        bool,
        typer.Option(
            "--lenient", help="Let warnings of its verification pass; probes and smoke queries count all the same."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would have to show.")] = False,
    admin: _Address = None,
    key_env: _KeyEnv = None,
    key_file: _KeyFile = None,
) -> None:
    """Activate a release, and begin its steps. What it must show, and how soon harm is met, is told first."""
    from cascade.cli.rollout_bundle import bundle_from_here, hint_of_path

    bundle = bundle_from_here(release)
    with _asking(admin, key_env, key_file) as asked:
        wanted = release if bundle is None else asked.upload(bundle)
        console = Console()
        try:
            foreseen = asked.get("/rollout/foreseen", release=wanted)
        except TurnedDown as refusal:
            raise TurnedDown(refusal.what, refusal.why + (hint_of_path(release) if bundle is None else ())) from None
        _print(console, foreseen_view(foreseen, at_once=at_once))
        if dry_run:
            return
        with Console(stderr=True).status("activating"):
            told = asked.post("/rollout", release=wanted, at_once=at_once, lenient=lenient)
        _say(console, told)


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew each second, until Ctrl-C.")] = False,
    json: _Json = False,
    admin: _Address = None,
    key_env: _KeyEnv = None,
    key_file: _KeyFile = None,
) -> None:
    """Show what is desired and active, since when, and the guardrails with their numbers."""
    if watch and json:
        raise ConfigError("--watch, --json: name one")
    with _asking(admin, key_env, key_file) as asked:
        console = Console()
        if watch:
            watch_status(lambda: asked.get("/rollout"), console)
            return
        told = asked.get("/rollout")
        if json:
            _write(told)
        else:
            _print(console, status_view(told, console.width))


@app.command()
def wait(
    release: Annotated[
        str, typer.Argument(help="Digest or name of a release that was started, or that a source names.")
    ],
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            min=0,
            help="Seconds, 0 to look once; then exit status 3. Unset: as long as it takes.",
            show_default=False,
        ),
    ] = None,
    admin: _Address = None,
    key_env: _KeyEnv = None,
    key_file: _KeyFile = None,
) -> None:
    """Wait until a release decides all traffic. Where it was refused or taken back: exit status 1, and why."""
    with _asking(admin, key_env, key_file) as asked:
        wait_for(lambda: asked.get("/rollout"), Console(), release, timeout)


@app.command()
def promote(
    force: Annotated[bool, typer.Option("--force", help="Without evidence too; the history says so.")] = False,
    admin: _Address = None,
    key_env: _KeyEnv = None,
    key_file: _KeyFile = None,
) -> None:
    """Go on to the next step before its time."""
    with _asking(admin, key_env, key_file) as asked:
        _say(Console(), asked.post("/rollout/promote", force=force))


@app.command()
def abort(
    reason: Annotated[str, typer.Option("--reason", help="Why, for the history.", show_default=False)] = "",
    admin: _Address = None,
    key_env: _KeyEnv = None,
    key_file: _KeyFile = None,
) -> None:
    """Take the candidate back, or end its activation."""
    with _asking(admin, key_env, key_file) as asked:
        _say(Console(), asked.post("/rollout/abort", reason=reason))


@app.command()
def history(json: _Json = False, admin: _Address = None, key_env: _KeyEnv = None, key_file: _KeyFile = None) -> None:
    """Show what happened, latest first, with the evidence of each step."""
    with _asking(admin, key_env, key_file) as asked:
        told = asked.get("/rollout/history")
        if json:
            _write(told)
        else:
            _print(Console(), history_view(told["history"]))


@contextmanager
def _asking(url: str | None, key_env: str | None, key_file: Path | None) -> Iterator[Admin]:
    """Give the listener; where it refuses, say why and exit with 1."""
    asked = admin_of(url, key_env, key_file, _TLS.get())
    try:
        yield asked
    except TurnedDown as refusal:
        typer.echo(f"cascade: {refusal.what}", err=True)
        for each in refusal.why:
            typer.echo(f"  {each}", err=True)
        raise typer.Exit(1) from None
    except TimeOver as over:
        typer.echo(f"cascade: {over}", err=True)
        raise typer.Exit(3) from None
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConfigError(f"{asked.url} tells of rollouts otherwise than this version does") from None
    finally:
        asked.close()


def _print(console: Console, lines: Iterable[RenderableType]) -> None:
    for each in lines:
        console.print(each, soft_wrap=isinstance(each, Text))


def _say(console: Console, told: dict[str, Any]) -> None:
    console.print(f"{state_of(told)}: {headline(told)}", soft_wrap=True, markup=False, highlight=False)


def _write(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(told, option=_OPTIONS) + b"\n")
