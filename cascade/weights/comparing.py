"""Score pairs with two models, one pair a call, and say how near their scores and orders are."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.parity.agreement import kendall, top
from cascade.policy.stage_specs import Weights
from cascade.stages.cores import usable_cores
from cascade.stages.engine.readers import pair_reader
from cascade.stages.engine.tokens import Reader, Tokens
from cascade.stages.onnx_model import OnnxModel
from cascade.weights.text_pairs import Lists

__all__ = ["Difference", "Scores", "difference", "read_tokens", "score_folder"]

Scores = Sequence[npt.NDArray[np.float64]]
_K: Final = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the scores of two models are apart, in the model's own output; what is undefined is None.

    ``kendall`` is the mean of tau-b over queries, ``overlap`` the mean share of the first ten in common, over
    queries with more than ten documents.
    """

    pairs: int
    greatest: float
    mean: float
    kendall: float | None
    overlap: float | None


def read_tokens(tokenizer: Path, lists: Lists, max_length: int) -> list[list[Tokens]]:
    """Return the input of each pair, query by query, cut to ``max_length`` ids."""
    reader: Reader = pair_reader(tokenizer, max_length=max_length, windows=None, cached_bytes=0)
    sides = ((reader.query(query), documents) for query, documents in lists.items())
    return [[reader.read(side, document).inputs[0] for document in documents] for side, documents in sides]


def score_folder(folder: Path, inputs: Sequence[Sequence[Tokens]]) -> Scores:
    """Score inputs with the model in a folder, one pair a call. Raises ConfigError where it gives no score a pair."""
    model = OnnxModel(Weights(folder=str(folder)))
    with ThreadPoolExecutor(usable_cores()) as threads:
        return [np.array(list(threads.map(lambda each: _score(model, each), pairs))) for pairs in inputs]


def _score(model: OnnxModel, tokens: Tokens) -> float:
    try:
        output = model.run([tokens])
    except Exception as error:  # noqa: BLE001 - the library raises undeclared types of its own
        why = f"weights: the model fails on a pair of {len(tokens)} tokens: {type(error).__name__}"
        raise ConfigError(f"{why}; where it takes fewer, say so with --max-length") from None
    if output.size != 1 or not np.isfinite(output).all():
        raise ConfigError("weights: a cross-encoder answers one finite score a pair, and this model does not")
    return float(output.reshape(-1)[0])


def difference(ref: Scores, other: Scores) -> Difference:
    """Compare the scores of the same lists."""
    errors = np.abs(np.concatenate(other) - np.concatenate(ref))
    taus = [tau for ours, theirs in zip(ref, other, strict=True) if (tau := kendall(ours, theirs)) is not None]
    shared = [
        len(top(ours, _K) & top(theirs, _K)) / _K for ours, theirs in zip(ref, other, strict=True) if ours.size > _K
    ]
    return Difference(
        int(errors.size),
        float(errors.max()),
        float(errors.mean()),
        float(np.mean(taus)) if taus else None,
        float(np.mean(shared)) if shared else None,
    )
