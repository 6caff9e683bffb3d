"""The command line as a whole."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from cascade import __version__
from cascade.cli import app
from tests.cli.conftest import Command, WriteRelease

_DEAR = ["cascade.policy", "cascade.rollout", "cascade.server", "numpy"]


def test_version_is_the_package_s(command: Command) -> None:
    """``--version`` prints it alone."""
    done = command("--version")
    assert (done.status, done.out, done.err) == (0, f"{__version__}\n", "")


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--help"], ["serve", "rerank", "config", "--version"]),
        (["serve", "--help"], ["--release", "--host", "--port", "--admin-host", "--admin-port", "--config", "SIGTERM"]),
        (["rerank", "--help"], ["--release", "--format", "--config", "stdin"]),
        (["config", "--help"], ["validate", "dump"]),
        (["config", "validate", "--help"], ["--release", "--config"]),
        (["config", "dump", "--help"], ["--expand", "Tokens are never read"]),
    ],
)
def test_help_tells_commands_and_options(command: Command, arguments: list[str], told: list[str]) -> None:
    """Each help text has what a reader needs, and is exit 0."""
    done = command(*arguments, variables={"COLUMNS": "120", "NO_COLOR": "1"})
    assert done.status == 0
    for each in told:
        assert each in _plain(done.out)


def test_the_list_of_commands_says_of_each_what_it_says_of_itself() -> None:
    """Its line is written where no command is imported, and begins the help of the command."""
    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="cascade")
    listed = {name: group.get_command(context, name).help for name in group.list_commands(context)}
    own = {name: " ".join(group.resolve_command(context, [name])[1].help.split()) for name in listed}
    assert [name for name, line in listed.items() if not line or not own[name].startswith(line)] == []


@pytest.mark.parametrize(
    ("arguments", "imported"), [("--version", []), ("--help", []), ("keys --help", ["cascade.cli.keys"])]
)
def test_a_command_is_imported_when_it_is_asked_for(arguments: str, imported: list[str]) -> None:
    """The start of a process waits for no other."""
    shown = "print([name for name in sorted(sys.modules) if name.startswith('cascade.cli.')], file=sys.stderr)"
    program = f"import sys\nfrom cascade.cli import main\ntry:\n    main()\nfinally:\n    {shown}\n"
    command = [sys.executable, "-c", program, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stderr) == imported


def test_where_the_address_is_named_a_rollout_is_asked_for_without_settings_and_releases() -> None:
    """Whoever looks each second, from a script, pays for neither."""
    ends = "except SystemExit as end:\n    sys.exit(f'{end.code} {sorted({*dear} & {*sys.modules})}')\n"
    program = f"import sys\nfrom cascade.cli import main\ndear = {_DEAR}\ntry:\n    main()\n{ends}"
    command = [sys.executable, "-c", program, "rollout", "status", "--admin", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines() == ["cascade: http://127.0.0.1:9 does not answer: ConnectError", "2 []"]


@pytest.mark.parametrize(("arguments", "told"), [([], "rerank"), (["config"], "validate")])
def test_without_a_command_the_help_is_shown(command: Command, arguments: list[str], told: str) -> None:
    """Nothing is run, and the commands are told."""
    done = command(*arguments, variables={"COLUMNS": "120", "NO_COLOR": "1"})
    assert "Usage: " in _plain(done.out)
    assert told in _plain(done.out)


@pytest.mark.parametrize("arguments", [["surve"], ["serve", "--prot", "1"], ["serve", "--port", "many"]])
def test_a_wrong_command_or_option_is_exit_2(command: Command, arguments: list[str]) -> None:
    """Usage errors end as configuration errors do."""
    done = command(*arguments)
    assert (done.status, done.out) == (2, "")
    assert "Traceback" not in done.err


def test_serve_that_cannot_start_is_one_line_and_exit_2(command: Command, release: WriteRelease) -> None:
    """Flags reach the settings: a bad one is named, and nothing is served."""
    done = command("serve", "--release", release(), "--port", "70000")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("cascade: settings: port: ")
    assert done.err.count("\n") == 1


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m cascade.cli`` is the same command."""
    monkeypatch.setattr(sys, "argv", ["cascade", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("cascade.cli", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{__version__}\n"
