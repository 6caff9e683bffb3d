"""Stages with one fault each, and a comparison of two of them on virtual time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cascade.errors import StageError
from cascade.guard.deadline import Deadline
from cascade.parity.assemble import Question
from cascade.parity.comparison import Comparison
from cascade.parity.gather import Gathered
from cascade.parity.lists import CandidateList, FloatArray
from cascade.parity.live import Live
from cascade.parity.pairs import PairedList
from cascade.parity.run import Surroundings, run_parity
from cascade.parity.slices import labels_of
from cascade.parity.sources import Source
from cascade.parity.spaces import Spaces
from cascade.parity.tolerances import Check, Tolerances, checks
from cascade.replay.table import ScoreTable
from cascade.stages.base import Stage
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import ScoreSpace, StageScores

__all__ = [
    "BentStage",
    "candidate_list",
    "compared",
    "failed",
    "hashed",
    "lists_of",
    "named",
    "paired_list",
    "source",
    "table",
]

Bend = Callable[[str, Sequence[str], list[float]], list[float]]


def hashed(query: str, text: str) -> float:
    """Return a logit between -8 and 8 that follows from the pair and from nothing else."""
    digest = hashlib.blake2b(f"{query}|{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 * 16.0 - 8.0


@dataclass
class BentStage(ScriptedStage):
    """Score right, then bend the scores of a whole call; ``lost`` names queries whose calls fail with an error."""

    bend: Bend = lambda query, texts, scores: scores
    lost: Callable[[str], type[StageError] | None] = lambda query: None

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        """Return the bent scores of a call."""
        if (error := self.lost(query.reveal())) is not None:
            raise error("bent", "scripted", elapsed_ms=1.0, budget_ms=1.0)
        answer = await super().score(query, documents, deadline=deadline, call_id=call_id, instruction=instruction)
        texts = [document.reveal() for document in documents]
        scored = [place for place, score in enumerate(answer.scores) if score is not None]
        bent = self.bend(
            query.reveal(), [texts[place] for place in scored], [float(answer.scores[place] or 0.0) for place in scored]
        )
        by_place = dict(zip(scored, bent, strict=True))
        return replace(answer, scores=tuple(by_place.get(place) for place in range(len(texts))))


def compared(
    ref: Stage | Live | Source,
    cand: Stage | Live | Source,
    gathered: Gathered | None = None,
    spaces: Spaces | None = None,
    **question: Any,
) -> Comparison:
    """Compare two sides on virtual time, with a window of 64 tokens."""
    both = spaces or Spaces(ScoreSpace.LOGIT, ScoreSpace.LOGIT)
    ours, theirs = (side if isinstance(side, Live | Source) else Live(side) for side in (ref, cand))

    async def go() -> Comparison:
        around = Surroundings(asyncio.get_running_loop().time, lambda: None)
        return await run_parity(ours, theirs, gathered, both, Question(**{"max_length": 64, **question}), around)

    return run_virtual(go())


def failed(comparison: Comparison, **tolerances: Any) -> set[str]:
    """Return the names of the limits that are not kept."""
    return {check.name for check in checks(comparison, Tolerances(**tolerances)) if check.passed is False}


def named(comparison: Comparison, name: str, **tolerances: Any) -> Check:
    """Return one check."""
    return next(check for check in checks(comparison, Tolerances(**tolerances)) if check.name == name)


def candidate_list(name: str, documents: Sequence[str], **fields: Any) -> CandidateList:
    """Return a list of a query and its documents, labelled."""
    query = fields.pop("query", f"query {name}")
    ids = tuple(f"d{place}" for place in range(len(documents)))
    return CandidateList(name, ids, query, tuple(documents), labels=labels_of(query, documents, 64), **fields)


def lists_of(queries: int, documents: int = 12, text: str = "plain words about a thing") -> Gathered:
    """Return lists of different short documents, judged: the first three documents are relevant."""
    grades = tuple(1 if place < 3 else 0 for place in range(documents))
    made = tuple(
        candidate_list(
            f"q{number}",
            [f"{text} {_word(number, place)}" for place in range(documents)],
            query=f"query {_word(number, 0)}",
            grades=grades,
            ideal=(1, 1, 1),
        )
        for number in range(queries)
    )
    return Gathered(made, of_queries=queries)


def _word(number: int, place: int) -> str:
    """Return a word without a digit that no other pair has."""
    return (
        f"{'abcdefghijklmnopqrstuvwxyz'[number % 26]}{'abcdefghijklmnopqrstuvwxyz'[place % 26]}{'x' * (number // 26)}"
    )


def paired_list(
    ref: Sequence[float] | FloatArray, cand: Sequence[float] | FloatArray, name: str = "q", **fields: Any
) -> PairedList:
    """Return a list that both sides scored once, in one space."""
    ours, theirs = np.asarray(ref, dtype=np.float64), np.asarray(cand, dtype=np.float64)
    return PairedList(
        **{
            "id": name,
            "ref": ours,
            "cand": theirs,
            "ref_common": ours,
            "cand_common": theirs,
            "excess": np.abs(theirs - ours),
            "labels": {},
            **fields,
        }
    )


def table(scores: dict[str, list[float]], queries: int = 2, **fields: Any) -> ScoreTable:
    """Return a table of equally long queries q0, q1, ... with documents d0, d1, ..."""
    rows = len(next(iter(scores.values())))
    each = rows // queries
    made: dict[str, Any] = {
        "query_ids": tuple(f"q{number}" for number in range(queries)),
        "offsets": np.arange(0, rows + 1, each, dtype=np.int64),
        "doc_ids": tuple(f"d{row % each}" for row in range(rows)),
        "scores": {name: np.array(values, dtype=np.float64) for name, values in scores.items()},
    }
    return ScoreTable(**made | fields)


def source(of: ScoreTable, column: str, file: str = "t.parquet") -> Source:
    """Return a column of a table as a side."""
    return Source(file, of, column, of.column(column))
