"""Inputs of random ids, the same ones every time, at lengths at which sums may be taken in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cascade.stages.engine.tokens import Tokens

__all__ = ["LENGTHS", "drawn_inputs"]

LENGTHS: Final = (*range(3, 35), 65, 129, 257, 385, 513, 769)
"""onnxruntime's products on a CPU work in rows of up to 12, columns of 16 or 32, panels of 128, 256 or 512 by the width of a
head: every remainder of the first two, and a length beyond each edge of the others."""
_SEED: Final = 1


def drawn_inputs(longest: Tokens, vocabulary: int) -> Sequence[Tokens]:
    """Return an input of each of `LENGTHS` up to that of ``longest``, whose segment ids they have."""
    draw = np.random.default_rng(_SEED)
    lengths = [length for length in LENGTHS if length <= len(longest)]
    return [Tokens(draw.integers(vocabulary, size=length), longest.type_ids[:length]) for length in lengths]
