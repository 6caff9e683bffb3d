"""Where the pairs of ``cascade parity`` come from, and in what space and window they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.parity.gather import Gathered, of_collection, of_table, of_tables
from cascade.parity.live import Live
from cascade.parity.report import BUILT_IN
from cascade.parity.sources import Source
from cascade.parity.spaces import Spaces
from cascade.replay.collect import choose_queries
from cascade.replay.collection import load_collection
from cascade.replay.first_stage import FirstStage
from cascade.types import ScoreSpace

__all__ = ["Wanted", "gathered_pairs", "spaces_of", "window_of"]

_QUERIES: Final = 50
_DEPTH: Final = 30
_WINDOW: Final = 512


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which pairs are wanted. None means all of a table, and the defaults of a collection."""

    dataset: Path | None
    qrels: Path | None
    queries: int | None
    depth: int | None
    window: int


def gathered_pairs(ref: Source | Live, cand: Source | Live, wanted: Wanted) -> tuple[str, Gathered | None]:
    """Return where pairs come from, in words, and the pairs; None where the built-in ones are all there is.

    Raises ConfigError.
    """
    if isinstance(ref, Source) and isinstance(cand, Source):
        if wanted.dataset is not None:
            raise ConfigError("--dataset does not go with two tables: their pairs are compared")
        return f"{ref.file} and {cand.file}", of_tables(ref, cand, wanted.queries, wanted.depth, wanted.window)
    if wanted.dataset is None:
        if isinstance(ref, Source) or isinstance(cand, Source):
            raise ConfigError("a table holds no text: name the --dataset that it was collected from")
        for option, value in (("--qrels", wanted.qrels), ("--queries", wanted.queries), ("--depth", wanted.depth)):
            if value is not None:
                raise ConfigError(f"{option} needs a --dataset")
        return BUILT_IN, None
    collection = load_collection(wanted.dataset, wanted.qrels)
    if isinstance(ref, Source):
        found = of_table(ref, collection, wanted.queries, wanted.depth, wanted.window, ref=True)
        return f"{ref.file} with texts of {collection.name}", found
    if isinstance(cand, Source):
        found = of_table(cand, collection, wanted.queries, wanted.depth, wanted.window, ref=False)
        return f"{cand.file} with texts of {collection.name}", found
    names = choose_queries(collection, wanted.queries or _QUERIES)
    depth = wanted.depth or _DEPTH
    found = of_collection(collection, names, FirstStage(collection), depth, wanted.window)
    return f"{collection.name}: BM25's first {depth}", found


def spaces_of(
    ref: Source | Live, cand: Source | Live, ref_space: ScoreSpace | None, cand_space: ScoreSpace | None
) -> Spaces:
    """Return the spaces that sides declare, or of tables the options. Raises ConfigError for an option of a stage."""
    for option, side, asked in (("--ref-space", ref, ref_space), ("--cand-space", cand, cand_space)):
        if isinstance(side, Live) and asked is not None:
            raise ConfigError(f"{option} is for tables: a stage declares score_space, an endpoint #score_space=...")
    ranks = any(isinstance(side, Source) and side.ranks for side in (ref, cand))
    found = (_space(ref, ref_space), _space(cand, cand_space))
    if ScoreSpace.RANK in found:  # orders alone can be compared, as of a column of ranks
        return Spaces(None, None, ranks=True)
    return Spaces(*found, ranks)


def _space(side: Source | Live, asked: ScoreSpace | None) -> ScoreSpace | None:
    if isinstance(side, Live):
        return side.stage.space
    return side.space if asked is None else asked


def window_of(ref: Source | Live, cand: Source | Live, asked: int | None) -> int:
    """Return the longest pair in tokens: as asked, else the shorter one that the sides declare, else 512."""
    told = [side.max_length if isinstance(side, Source) else side.stage.fingerprint.max_length for side in (ref, cand)]
    return asked or min((length for length in told if length is not None), default=_WINDOW)
