"""Render the reference of the command line from the application itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer.main

from cascade.cli import app

__all__ = ["command_line", "commands"]

_HEAD: Final = (
    "# Command line\n\nGenerated from the code (`scripts/generate.py`). Every command, argument and option, with its default; "
    "`cascade COMMAND --help` tells the same. An error of the caller's is one line on stderr and exit status 2; what a 1 means, "
    "the command's page says. A flag of `serve` that is not given leaves the setting as it is. Options that name a release or settings are told in [configuration.md](configuration.md).\n"
)
_PAGES: Final = {
    "serve": "deploy.md", "rerank": "quickstart.md", "collect": "collect.md", "calibrate": "calibrate.md", "eval": "evaluate.md",
    "certify": "certify.md", "off-policy": "off-policy.md", "parity": "parity.md", "tune": "tune.md", "capacity": "capacity.md",
    "explain": "explain.md", "doctor": "quickstart.md#your-own-rerankers", "config": "configuration.md", "keys": "admission.md",
    "release": "releases.md", "rollout": "rollout.md", "weights": "weights.md",
}  # fmt: skip
"""Where the command's own page is; a command that is not here fails the rendering."""


def command_line() -> str:
    """Return docs/cli.md."""
    parts = [_HEAD]
    told = ""
    for words, command, context in commands():
        if words and words[0] != told:
            told = words[0]
            parts.append(f"## cascade {told}\n\nMore in [{_PAGES[told].partition('#')[0]}]({_PAGES[told]}).\n")
        if len(words) > 1:
            parts.append(f"### cascade {' '.join(words)}\n")
        parts.append(_described(command, context))
    return "\n".join(parts)


def commands() -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the words, the command and its context of every command and group, in the order of the help."""
    yield from _below((), typer.main.get_command(app), None)


def _below(words: tuple[str, ...], command: Any, parent: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    name = words[-1] if words else "cascade"
    context = command.context_class(command, info_name=name, parent=parent, terminal_width=1000, max_content_width=1000)
    yield words, command, context
    for each in getattr(command, "commands", {}):
        yield from _below((*words, each), command.resolve_command(context, [each])[1], context)


def _described(command: Any, context: Any) -> str:
    help_text = (command.help or "").strip()
    usage = command.get_usage(context).removeprefix("Usage: ").strip()
    text = f"{help_text}\n\n```text\n{usage}\n```\n"
    records = [record for one in command.params if (record := one.get_help_record(context)) is not None]
    if not records:
        return text
    rows = ["| | value | |", "|---|---|---|", *(_row(name, said) for name, said in records)]
    return "\n".join([text, *rows]) + "\n"


def _row(name: str, said: str) -> str:
    """Return a line of the help as a row: its names, what kind of value follows, and what it is."""
    names, _, kind = name.partition(" <")
    kind = kind.removesuffix(">").replace("|", " or ").replace(" range", "")
    many = kind.startswith("list[")
    kind = kind.removeprefix("list[").removesuffix("]").lower() + (", repeat it" if many else "")
    return f"| `{names}` | {kind} | {' '.join(said.replace('|', '&#124;').split())} |"
