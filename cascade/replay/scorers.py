"""Which stages score, and what their columns are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from cascade.errors import ConfigError
from cascade.replay.first_stage import BM25, DENSE
from cascade.replay.table import holds_ranks, is_score_name
from cascade.types import SCORING, StageName

__all__ = ["scorer_columns"]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NOT_SCORERS: Final = frozenset({BM25, DENSE, "source"})


def scorer_columns(
    there: Iterable[StageName], scorers: Sequence[str] | None, names: Sequence[str]
) -> dict[str, StageName]:
    """Return the stage behind each column, small before large.

    ``there`` are the stages that the release has, ``scorers`` those that score (None: all of them), and
    ``names`` renames their columns, each like ``small=bge_small``. Raises ConfigError.
    """
    available: list[StageName] = [name for name in SCORING if name in set(there)]
    if not available:
        raise ConfigError("the release has no stage that could score")
    chosen = available if scorers is None else [_stage("scorers", name.strip(), available) for name in scorers]
    columns: dict[StageName, str] = {stage: str(stage) for stage in available if stage in chosen}
    for renamed in names:
        before, equals, after = renamed.partition("=")
        if not equals:
            raise ConfigError("name: a stage and its column are wanted, as in small=bge_small")
        columns[_stage("name", before.strip(), list(columns))] = _column(after.strip())
    if len(set(columns.values())) < len(columns):
        raise ConfigError("name: two stages cannot share a column")
    return {column: stage for stage, column in columns.items()}


def _stage(option: str, name: str, available: Sequence[StageName]) -> StageName:
    if name not in list(available):
        raise ConfigError(f"{option}: no stage {name!r}; there are {', '.join(available)}")
    return StageName(name)


def _column(name: str) -> str:
    if not _NAME.fullmatch(name) or not is_score_name(name) or holds_ranks(name) or name in _NOT_SCORERS:
        raise ConfigError(f"name: a column of scores cannot be called {name!r}")
    return name
