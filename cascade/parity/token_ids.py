"""Compare what both sides read of a pair: token ids where models run here, else the counts that servers tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cascade.parity.lists import CandidateList
from cascade.policy.release import EmbeddingStage, OnnxStage, StageSpec
from cascade.stages.engine.readers import pair_reader, text_reader
from cascade.stages.engine.tokens import Reader
from cascade.stages.serializers import serializer
from cascade.stages.weights import find_model
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN, beginning_of

__all__ = ["TokenReader", "Tokens", "compare_counts", "compare_ids", "token_reader"]

TokenReader = Callable[[str, str], tuple[int, ...]]
"""Give the token ids that a model reads of a query and a document."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many of ``compared`` differ: pairs by ``ids``, or whole calls by ``counts``.

    ``first`` is the first difference: list, document (None for counts) and, of ids, the place in the sequence.
    ``ref`` and ``cand`` are totals of tokens.
    """

    kind: str
    compared: int
    differing: int
    ref: int
    cand: int
    first: tuple[str, str | None, int | None] | None = None


def token_reader(spec: StageSpec) -> TokenReader | None:
    """Return what gives the ids that a stage of this release reads, None where it runs on a server.

    As the stage does it: serialized, beginnings of far longer texts, truncated longest side first, all windows one
    after the other; a bi-encoder reads query and document one after the other. Raises ConfigError.
    """
    if not isinstance(spec, OnnxStage | EmbeddingStage):
        return None
    file, written = find_model(spec.weights).tokenizer, serializer(spec.serializer)
    windows = spec.windows if isinstance(spec, OnnxStage) else None
    most = spec.max_length * MOST_CHARACTERS_PER_TOKEN * (1 if windows is None else windows.most)
    joint = isinstance(spec, OnnxStage)
    reader: Reader = (
        pair_reader(file, max_length=spec.max_length, windows=windows) if joint else text_reader(file, spec.max_length)
    )

    def read(query: str, document: str) -> tuple[int, ...]:
        first, second = written.query(beginning_of(query, most)), written.document(beginning_of(document, most))
        shared = reader.query(first)
        before = [] if joint else reader.read(shared, first).inputs
        return tuple(chain.from_iterable(each.ids.tolist() for each in (*before, *reader.read(shared, second).inputs)))

    return read


def compare_ids(lists: Sequence[CandidateList], ref: TokenReader, cand: TokenReader) -> Tokens:
    """Compare the ids of every pair of lists that have text; blank documents are not read."""
    differing = ours = theirs = compared = 0
    first: tuple[str, str | None, int | None] | None = None
    for item in lists:
        for name, document in zip(item.doc_ids, item.documents or (), strict=True):
            if item.query is None or not document.strip():
                continue
            left, right = ref(item.query, document), cand(item.query, document)
            compared, ours, theirs = compared + 1, ours + len(left), theirs + len(right)
            if left != right:
                differing += 1
                first = first or (item.id, name, _parting(left, right))
    return Tokens("ids", compared, differing, ours, theirs, first)


def _parting(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the first place at which two sequences differ; where one begins the other, the end of the shorter."""
    return next(
        (place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other),
        min(len(left), len(right)),
    )


def compare_counts(ref: Mapping[str, int], cand: Mapping[str, int]) -> Tokens | None:
    """Compare the tokens that both sides counted of the same calls, None where there is no such call."""
    both = [name for name in ref if name in cand]
    if not both:
        return None
    different = [name for name in both if ref[name] != cand[name]]
    first = (different[0], None, None) if different else None
    ours, theirs = (sum(side[name] for name in both) for side in (ref, cand))
    return Tokens("counts", len(both), len(different), ours, theirs, first)
