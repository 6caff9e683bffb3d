"""A cross-encoder that is loaded and held against fixed pairs, for one stage or for several that differ in numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.policy.stage_specs import Attention, OnnxStage
from cascade.stages.answers import AnswerFault, InvalidAnswer
from cascade.stages.engine.batching import batching_of
from cascade.stages.engine.drawn import drawn_inputs
from cascade.stages.engine.invariance import PROBE_QUERY, PROBES, batch_effect
from cascade.stages.engine.readers import pair_reader
from cascade.stages.engine.tokens import Reader, Tokens
from cascade.stages.graph.apart import exact_form_apart
from cascade.stages.graph.exact import WhyExported
from cascade.stages.onnx_model import DEFAULT_SESSION, LONGEST_INPUT, OnnxModel, SessionOptions, refused

__all__ = ["LoadedCrossEncoder", "Rewriting", "logits"]

Rewriting = Callable[[Path], bytes | WhyExported]
"""What makes a model's other form of its file, or tells why not."""


class LoadedCrossEncoder:
    """Hold a model and what reads for it; what it makes of fixed pairs is measured once, when it is first asked for.

    Of the stage that it is loaded for, weights, ``max_length``, windows, the room for token ids, and whether pairs share
    calls count, no number of a batch. One pair a call, ``attention: exact`` runs what ``rewritten`` makes of the file where
    it gives the same bits; ``why_exported`` tells why it does not, None where it does or was not to. Raises ConfigError
    where the model cannot be loaded, or does not answer fixed pairs.
    """

    def __init__(
        self, spec: OnnxStage, session: SessionOptions = DEFAULT_SESSION, *, rewritten: Rewriting = exact_form_apart
    ) -> None:
        self.model = OnnxModel(spec.weights, session)
        reader = pair_reader(
            self.model.files.tokenizer,
            max_length=spec.max_length,
            windows=spec.windows,
            cached_bytes=spec.cached_token_bytes,
        )
        self.reader: Reader = reader
        self._max_length = spec.max_length
        self.is_one_pair = batching_of(spec.batching).is_one_pair
        self.why_exported: WhyExported | None = None
        self.attention = Attention.EXPORTED
        if self.is_one_pair and spec.attention is Attention.EXACT:
            is_compared = (
                spec.max_length <= LONGEST_INPUT
            )  # beyond, a window of attention may begin that no input shows
            self.why_exported = self._rewrite(rewritten, reader.vocabulary) if is_compared else WhyExported.TOO_LONG
            self.attention = Attention.EXACT if self.why_exported is None else Attention.EXPORTED

    @cached_property
    def alone(self) -> Sequence[float]:
        """Return the raw scores of fixed pairs, each a call of its own. Raises ConfigError where it does not answer."""
        with refused("pairs"):
            *short, longest = self._fixed
            scores = [self._run([pair])[0] for pair in short]
        with refused("pairs", longest=self._max_length):
            return [*scores, self._run([longest])[0]]

    @cached_property
    def batch_effect(self) -> float:
        """Return the most that a raw score moves with its batch mates. Raises ConfigError where it does not answer.

        Of a model whose pairs share calls: the exact form of one pair a call reads no mask.
        """
        with refused("pairs"):
            return batch_effect(self._run, self._pairs)

    def _rewrite(self, rewritten: Rewriting, vocabulary: int) -> WhyExported | None:
        """Run the rewritten model in place of the exported one, where both give the same bits; return why not."""
        exact = rewritten(self.model.files.model)
        if isinstance(exact, WhyExported):
            return exact
        fixed = [np.float64(score).tobytes() for score in self.alone]
        drawn = drawn_inputs(self._fixed[-1], vocabulary)
        before = self._bits(drawn)
        if before is None:
            return WhyExported.NOT_COMPARED
        try:
            self.model.open(exact)
            after = self._bits([*self._fixed, *drawn])
        except ConfigError:
            after = None
        if after == [*fixed, *before]:
            return None
        self.model.open()
        return WhyExported.NOT_LOADED if after is None else WhyExported.OTHER_BITS

    def _bits(self, inputs: Sequence[Tokens]) -> list[bytes] | None:
        """Return the output of each input, a call of its own, None where one is not answered."""
        try:
            return [self.model.run([each]).tobytes() for each in inputs]
        except Exception:  # noqa: BLE001 - the library raises undeclared types of its own
            return None

    @cached_property
    def _fixed(self) -> Sequence[Tokens]:
        """Return the fixed pairs, the longest at the end."""
        ids, types = self.reader.read(self.reader.query(PROBE_QUERY), "lamp " * LONGEST_INPUT).inputs[0]
        return [*self._pairs, Tokens(ids[:LONGEST_INPUT], types[:LONGEST_INPUT])]

    @cached_property
    def _pairs(self) -> Sequence[Tokens]:
        query = self.reader.query(PROBE_QUERY)
        return [self.reader.read(query, probe).inputs[0] for probe in PROBES]

    def _run(self, inputs: Sequence[Tokens]) -> list[float]:
        try:
            return logits(self.model.run(inputs), len(inputs))
        except InvalidAnswer:
            raise ConfigError("weights: a cross-encoder answers one score a pair, and this model does not") from None


def logits(output: npt.NDArray[np.float64], pairs: int) -> list[float]:
    """Return the raw score of each pair of a batch. Raises InvalidAnswer where there is not one for each."""
    if output.size != pairs:
        raise InvalidAnswer(AnswerFault.WRONG_COUNT)
    scores: list[float] = output.reshape(-1).tolist()
    return scores
