"""What predictions of rewards read of a record: what was known before anything was decided, and nothing else.

A reward model may read neither what was done nor what only some actions bring to light, such as scores of the
stages: else what it predicts depends on the release that answered, and doubly robust estimates are biased.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.record_lines import DecisionLine
from cascade.signals.compute import compute
from cascade.signals.view import Inputs
from cascade.types import QueryClass

__all__ = ["feature_matrix", "features_of"]

_OF_CHANNEL: Final = ("gap", "separation", "entropy")
_ANY: Final = "any"
"""Under which a channel is measured: its own name may be one that signals do not take."""


def features_of(record: DecisionLine) -> dict[str, float]:
    """Return the features of a record by name; NaN is missing, and so is a name that is not there."""
    found = {
        "candidates": math.log1p(len(record.ids)),
        "top_n": math.log1p(record.top_n),
        "tokens": math.log1p(record.q_tokens),
        "identifiers": math.log1p(record.q_identifiers),
        **{f"class.{each.value}": float(record.q_class is each) for each in QueryClass},
    }
    for name, scores in record.channels.items():
        inputs = Inputs(channels={_ANY: np.array(scores, dtype=np.float64)})
        measured = compute([f"{_ANY}.{signal}" for signal in _OF_CHANNEL], inputs).values
        found |= {f"channel.{name}.{signal}": measured[f"{_ANY}.{signal}"] for signal in _OF_CHANNEL}
    return found


def feature_matrix(records: Sequence[Mapping[str, float]]) -> FloatArray:
    """Return features (n, d) of n records in the order of their names, NaN for what is missing."""
    names = sorted({name for each in records for name in each})
    return np.array([[each.get(name, math.nan) for name in names] for each in records]).reshape(len(records), -1)
