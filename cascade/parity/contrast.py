"""Contrast lists made of the built-in texts, and whether a side puts the good document above the bad one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.parity.contrast_texts import CASES, FILLER, OFF_TOPIC, WINDOW_ANSWER, WINDOW_QUERY
from cascade.parity.lists import CandidateList, Runs
from cascade.parity.slices import labels_of
from cascade.tokens import estimate_tokens

__all__ = ["Contrast", "contrast_lists", "contrasts", "long_text"]

_OTHERS: Final = 4
_GOOD, _BAD = 0, 1
_OVER: Final = 1.6
"""Estimated tokens of an over-length text, in windows: the estimate is up to a quarter too high."""
_PREFIX: Final = "built-in:"


@dataclass(frozen=True, slots=True)
class Contrast:
    """Scores of the good document minus those of the bad one, of each side; None where a side did not score both."""

    name: str
    kind: str
    ref_margin: float | None
    cand_margin: float | None

    @property
    def lost(self) -> bool:
        """Tell whether the reference has it right and the candidate has not."""
        return (self.ref_margin or 0.0) > 0.0 and self.cand_margin is not None and self.cand_margin <= 0.0


def long_text(part: str, tokens: float) -> str:
    """Return ``part`` as often as it takes for at least so many tokens, by estimate."""
    return part * (int(tokens / estimate_tokens(part)) + 1)


def contrast_lists(max_length: int) -> tuple[CandidateList, ...]:
    """Return a list for each case: good, bad, and the good documents of other cases.

    The last is over-length for a window of ``max_length`` tokens: the answer stands at the head, nowhere, in the
    middle of the window, and beyond its end.
    """
    made = []
    for number, case in enumerate(CASES):
        others = [CASES[(number + step) % len(CASES)].good for step in range(1, _OTHERS + 1)]
        made.append(_list(case.name, case.kind, case.query, (case.good, case.bad, *others), max_length))
    window = _OVER * max_length
    filler = long_text(FILLER, window)
    middle = long_text(FILLER, max_length / 2)
    documents = (
        WINDOW_ANSWER + filler,
        long_text(OFF_TOPIC, window),
        middle + WINDOW_ANSWER + filler,
        filler + WINDOW_ANSWER,
    )
    return (*made, _list("window", "over-length", WINDOW_QUERY, documents, max_length))


def _list(name: str, kind: str, query: str, documents: tuple[str, ...], max_length: int) -> CandidateList:
    return CandidateList(
        id=f"{_PREFIX}{name}",
        doc_ids=("good", "bad", *(f"other-{number}" for number in range(1, len(documents) - 1))),
        query=query,
        documents=documents,
        labels={"kind": (kind,) * len(documents), **labels_of(query, documents, max_length)},
    )


def contrasts(lists: Sequence[CandidateList], ref: Runs | None, cand: Runs | None) -> list[Contrast]:
    """Return what each contrast list came to; a side that is None, or failed a list, scored nothing of it."""
    return [
        Contrast(item.id.removeprefix(_PREFIX), item.labels["kind"][0], _margin(ref, item.id), _margin(cand, item.id))
        for item in lists
    ]


def _margin(runs: Runs | None, name: str) -> float | None:
    if runs is None:
        return None
    scores = runs[name].mean(axis=0)
    margin = float(scores[_GOOD] - scores[_BAD])
    return margin if np.isfinite(margin) else None
