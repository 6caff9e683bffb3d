"""Every command that a page names is one, and takes the options that it is given there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from cascade.cli import app
from tests.docs.pages import PAGES, ROOT, blocks, commands

_OPEN: Final = re.compile(r"…|\.\.\.|^[A-Z]+$")
"""A word that stands for others, so that what is around it need not be whole."""
_MODULE: Final = re.compile(r"python -m (evals[\w.]*|tests[\w.]*)")
_SCRIPT: Final = re.compile(r"(?<![\w./])((?:scripts|evals)/[\w/-]+(?:\.py)?)(?=[`\s])")
_MADE: Final = re.compile(r"\bmake ([a-z][a-z-]+)\b")
_ROOT_COMMAND: Final[Any] = typer.main.get_command(app)
_QUICKSTART: Final = ROOT / "docs" / "quickstart.md"


def _fault(words: Sequence[str], *, whole: bool = True) -> str | None:
    """Return what is wrong with a command, None where nothing is; ``whole`` wants all that it needs, too."""
    command: Any = _ROOT_COMMAND
    context = command.context_class(command, info_name="cascade")
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if _OPEN.search(rest[0]):
            return None
        if rest[0] not in command.commands:
            return f"no command {rest[0]}"
        _, command, rest = command.resolve_command(context, rest)
        context = command.context_class(command, parent=context)
    names = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in names]
    if unknown:
        return f"no option {unknown[0]}"
    if not whole or hasattr(command, "commands") or any(_OPEN.search(word) for word in words):
        return None
    try:
        command.make_context("cascade", rest, parent=context.parent)
    except typer.TyperException as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_is_one(page: Path) -> None:
    """Its words lead to a command, its options are that command's, and in a block it can be parsed whole."""
    faults = {f"cascade {' '.join(words)}": _fault(words, whole=whole) for words, whole in commands(page)}
    assert {command: fault for command, fault in faults.items() if fault is not None} == {}


def test_commands_are_found_and_faults_told() -> None:
    """What holds pages is not blind: it finds commands in blocks and spans, and sees what is wrong with them."""
    assert sum(1 for page in PAGES for _ in commands(page)) > 100
    assert _fault(["serve", "--porr", "1"]) == "no option --porr"
    assert _fault(["serv"]) == "no command serv"
    assert "port" in (_fault(["serve", "--port", "x"]) or "")
    assert "--out" in (_fault(["eval", "--table", "t", "--small", "a", "--large", "b"]) or "")
    assert _fault(["certify", "...", "--epsilon", "0.1"]) is None


def test_every_script_module_and_target_of_a_page_is_there() -> None:
    """`python -m`, a script and `make` name what there is."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for module in _MODULE.findall(text):
            place = ROOT / module.replace(".", "/")
            missing += [] if place.with_suffix(".py").is_file() or place.is_dir() else [(page.name, module)]
        missing += [(page.name, name) for name in _SCRIPT.findall(text) if not (ROOT / name).exists()]
        named = [name for span in re.findall(r"`([^`\n]+)`", text) for name in _MADE.findall(span)]
        named += [name for block in blocks(page) for line in block.lines() for name in _MADE.findall(line)]
        missing += [(page.name, name) for name in named if name not in targets]
    assert missing == []


def test_the_quickstart_leads_to_a_valid_release(tmp_path: Path) -> None:
    """The block that makes a release of one's own runs as it is written."""
    block = next(one for one in blocks(_QUICKSTART) if "config example" in one.text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", block.text],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("valid: release tei-vllm-2026-11, sha256:")
