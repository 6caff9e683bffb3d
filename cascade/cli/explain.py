"""``cascade explain``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from cascade.cli.explain_found import Found, by_id, in_line, latest
from cascade.cli.explain_line import ExplainedLine, explained_of
from cascade.cli.explain_rule import is_of, rule_words
from cascade.cli.explain_words import Said, pair_words, words_of
from cascade.cli.rollout_words import plain
from cascade.errors import ConfigError
from cascade.rollout.load import LoadedRelease, load_release, offline

__all__ = ["explain"]

_STDIN: Final = "-"
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_LATEST: Final = 1000


def explain(
    records: Annotated[
        list[str], typer.Argument(help="Files of decision records, JSON lines or Parquet; or - for one line on stdin.")
    ],
    decision_id: Annotated[
        str | None, typer.Option("--id", help="Decision, by the id that its answer named.", show_default=False)
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, max=_MOST_LATEST, help="The latest decisions, so many.", show_default=False)
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(help="Release that decided, in YAML or a bundle: its rules are told too.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a request was decided as it was: depth, action, estimates, rounds, trouble, and the shadow beside it.

    On stdin a line of the log will do, or the explain of an answer. No server is called, and no text is in any of it.
    """
    found = _found(records, decision_id, last)
    loaded = None if release is None else load_release(release, offline(os.environ))
    told = [_explained(one, loaded) for one in found]
    if as_json:
        typer.echo(orjson.dumps({"decisions": told}, option=orjson.OPT_INDENT_2).decode())
        return
    for number, one in enumerate(told):
        if number:
            typer.echo("")
        for line in _lines(one):
            typer.echo(line)


def _found(records: list[str], decision_id: str | None, last: int | None) -> list[Found]:
    if _STDIN in records:
        if len(records) > 1 or decision_id is not None or last is not None:
            raise ConfigError("-: the one line on stdin goes with no file, --id or --last")
        lines = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(lines) > _MOST_BYTES:
            raise ConfigError(f"-: more than {_MOST_BYTES} bytes came")
        return [in_line(lines)]
    if (decision_id is None) == (last is None):
        raise ConfigError("name either a decision with --id, or with --last how many")
    paths = [Path(name) for name in records]
    return latest(paths, last) if last is not None else [by_id(paths, str(decision_id))]


def _explained(found: Found, loaded: LoadedRelease | None) -> dict[str, Any]:
    line = explained_of(found.told)
    said: list[Said] = list(words_of(line, found.head))
    pair = None if found.pair is None else explained_of(found.pair)
    if loaded is not None:
        said.insert(2, ("rules", _rules(loaded, line, found, pair)))
    if pair is not None:
        said.append(pair_words(line, pair))
    return {
        "decision_id": line.decision_id,
        "said": [{"of": about, "lines": lines} for about, lines in said],
        "decision": found.told,
        "head": found.head,
        "shadow": found.pair,
        "shadow_head": found.pair_head,
    }


def _rules(loaded: LoadedRelease, line: ExplainedLine, found: Found, pair: ExplainedLine | None) -> tuple[str, ...]:
    """Return the rules of a release: for the decision that was asked about, or for the other of the pair where it took that."""
    if pair is not None and not is_of(line, found.head, loaded) and is_of(pair, found.pair_head, loaded):
        return (f"of {pair.decision_id}", *rule_words(pair, found.pair_head, loaded))
    return rule_words(line, found.head, loaded)


def _lines(told: dict[str, Any]) -> Iterator[str]:
    yield plain(f"decision {told['decision_id']}")
    for said in told["said"]:
        for number, line in enumerate(said["lines"]):
            yield plain(f"{'' if number else said['of']:<10} {line}")
