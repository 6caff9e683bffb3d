"""What pages say that can be held against the project: commands, links, anchors and YAML."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "ROOT", "Block", "anchors", "blocks", "commands", "links"]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = tuple(
    sorted(
        path
        for pattern in ("*.md", "docs/**/*.md", "evals/**/*.md", "calibration/*.md", "deploy/**/*.md")
        for path in ROOT.glob(pattern)
    )
)
_FENCED: Final = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"(?:^|\s)#.*$")
_OPERATORS: Final = frozenset("|&;")
_ASSIGNED: Final = re.compile(r"[A-Z_]+=.*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language and its lines, continued ones joined."""

    language: str
    text: str

    def lines(self) -> Iterator[str]:
        """Yield what a shell is given, without prompts and comments."""
        for line in re.sub(r"\\\n\s*", " ", self.text).splitlines():
            yield _COMMENT.sub("", line.strip().removeprefix("$ ")).strip()


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [Block(*found) for found in _FENCED.findall(page.read_text(encoding="utf-8"))]


def commands(page: Path) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the words behind ``cascade`` of every command, and whether it is in a block, so meant to be whole."""
    for block in blocks(page):
        if block.language in {"", "console"}:
            for line in block.lines():
                yield from ((words, True) for words in _commands_of(line))
    for span in _SPAN.findall(_prose(page)):
        if span.startswith("cascade ") and "|" not in span and ", " not in span:
            yield from ((words, False) for words in _commands_of(span))


def links(page: Path) -> list[str]:
    """Return the targets of links that lead to somewhere in the project."""
    targets = _LINK.findall(_SPAN.sub("", _prose(page)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings have on GitHub; the site makes the same, but for headings that are there twice."""
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(_prose(page)):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        seen[re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")] += 1
    return {slug for slug, times in seen.items() if times == 1}


def _prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def _commands_of(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of ours in a line of shell, or of usage, whose brackets are left out."""
    if "[--" in line:
        line = re.sub(r"[\[\]|]", " ", line)
    if "cascade" not in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    skips = False
    for token in (*lexer, ";"):
        if _OPERATORS.issuperset(token):
            named = [word for word in words if not _ASSIGNED.fullmatch(word)]
            if named and Path(named[0]).name == "cascade":
                yield tuple(named[1:])
            words = []
        elif set(token) <= {"<", ">"}:
            skips = True
        elif skips:
            skips = False
        else:
            words.append(token)
