"""A cross-encoder that is loaded and held against fixed pairs, for one stage or for several that differ in batching alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.policy.stage_specs import OnnxStage
from cascade.stages.answers import AnswerFault, InvalidAnswer
from cascade.stages.engine.invariance import PROBE_QUERY, PROBES, batch_effect
from cascade.stages.engine.readers import pair_reader
from cascade.stages.engine.tokens import Reader, Tokens
from cascade.stages.onnx_model import DEFAULT_SESSION, OnnxModel, SessionOptions

__all__ = ["LoadedCrossEncoder", "logits"]

_LONGEST_PROBE: Final = 1024
"""Tokens of the longest fixed pair: one of ``max_length`` may take a while to load by."""


class LoadedCrossEncoder:
    """Hold a model and what reads for it; what it makes of fixed pairs is measured once, when it is first asked for.

    Of the stage that it is loaded for, weights, ``max_length``, windows and the room for token ids count, no batching.
    Raises ConfigError where the model cannot be loaded.
    """

    def __init__(self, spec: OnnxStage, session: SessionOptions = DEFAULT_SESSION) -> None:
        self.model = OnnxModel(spec.weights, session)
        self.reader: Reader = pair_reader(
            self.model.files.tokenizer,
            max_length=spec.max_length,
            windows=spec.windows,
            cached_bytes=spec.cached_token_bytes,
        )

    @cached_property
    def alone(self) -> Sequence[float]:
        """Return the raw scores of fixed pairs, each a call of its own. Raises ConfigError where it does not answer."""
        ids, types = self.reader.read(self.reader.query(PROBE_QUERY), "lamp " * _LONGEST_PROBE).inputs[0]
        longest = Tokens(ids[:_LONGEST_PROBE], types[:_LONGEST_PROBE])
        with _refused():
            return [self._run([pair])[0] for pair in (*self._pairs, longest)]

    @cached_property
    def batch_effect(self) -> float:
        """Return the most that a raw score moves with its batch mates. Raises ConfigError where it does not answer."""
        with _refused():
            return batch_effect(self._run, self._pairs)

    @cached_property
    def _pairs(self) -> Sequence[Tokens]:
        query = self.reader.query(PROBE_QUERY)
        return [self.reader.read(query, probe).inputs[0] for probe in PROBES]

    def _run(self, inputs: Sequence[Tokens]) -> list[float]:
        return logits(self.model.run(inputs), len(inputs))


@contextmanager
def _refused() -> Iterator[None]:
    """Tell as ConfigError what a model raises on fixed pairs."""
    try:
        yield
    except InvalidAnswer:
        raise ConfigError("weights: a cross-encoder answers one score a pair, and this model does not") from None
    except Exception as error:  # noqa: BLE001 - the library raises undeclared types of its own
        raise ConfigError(f"weights: the model fails on fixed pairs: {type(error).__name__}") from None


def logits(output: npt.NDArray[np.float64], pairs: int) -> list[float]:
    """Return the raw score of each pair of a batch. Raises InvalidAnswer where there is not one for each."""
    if output.size != pairs:
        raise InvalidAnswer(AnswerFault.WRONG_COUNT)
    scores: list[float] = output.reshape(-1).tolist()
    return scores
