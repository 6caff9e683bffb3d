"""A cross-encoder inside the sidecar."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.stage_specs import Activation, OnnxStage
from cascade.stages.base import Observed
from cascade.stages.embedded import EmbeddedStage, Work
from cascade.stages.engine.batching import batching_of
from cascade.stages.engine.engine import Engine
from cascade.stages.engine.invariance import TOLERANCE
from cascade.stages.engine.readers import JointReader
from cascade.stages.engine.workers import Workers
from cascade.stages.graph.apart import exact_form_apart
from cascade.stages.graph.exact import WhyExported
from cascade.stages.onnx_loaded import LoadedCrossEncoder, Rewriting, logits
from cascade.stages.onnx_model import DEFAULT_SESSION, SessionOptions
from cascade.telemetry.logs import note
from cascade.telemetry.work import NO_WORK_EVENTS, WorkEvents
from cascade.types import ScoreSpace, StageCost

__all__ = ["OnnxReranker"]


class OnnxReranker(EmbeddedStage[float]):
    """Score pairs with a cross-encoder.

    In ``one-pair`` mode each pair is a call of its own: scores depend on nothing but the pair, bit for
    bit, and the same whether attention runs as exported or in its exact form. In ``token-budget`` mode pairs of about one length share a call, those of other requests too; a model whose scores
    move with its batch mates is refused in that mode at load. A document in several windows scores as its best one.
    ``loaded`` is a model that is loaded already, for a stage that differs from this one in the numbers of a batch alone; unset:
    the stage loads its own, and hands ``rewritten`` on to it.
    """

    def __init__(
        self,
        name: str,
        spec: OnnxStage,
        workers: Workers,
        clock: Clock,
        count_fault: Callable[[BaseException], None] = lambda error: None,
        *,
        session: SessionOptions = DEFAULT_SESSION,
        loaded: LoadedCrossEncoder | None = None,
        rewritten: Rewriting = exact_form_apart,
        events: WorkEvents = NO_WORK_EVENTS,
    ) -> None:
        super().__init__(name, spec, workers, clock, count_fault, session=session, events=events)
        self._onnx = spec
        self._batching = batching_of(spec.batching)
        self._loaded = loaded
        self._rewritten = rewritten
        if loaded is not None and loaded.is_one_pair is not self._batching.is_one_pair:
            raise ValueError("a model is loaded for one pair a call, or for batches")
        self._attention: str | None = None
        if spec.windows is not None:
            self._most_characters *= spec.windows.most

    def _load(self) -> Engine[float]:
        loaded = self._loaded or LoadedCrossEncoder(self._onnx, self._session, rewritten=self._rewritten)
        self._check(loaded)
        self._weights_sha256 = loaded.model.weights_sha256
        why = loaded.why_exported
        self._attention = str(loaded.attention) if why is None else f"{loaded.attention}: {why}"
        return Engine(
            loaded.model,
            workers=self._workers,
            batching=self._batching,
            reader=loaded.reader,
            answer=logits,
            better=_higher,
            count_fault=self._count_fault,
            ran=self._events.ran,
        )

    @property
    def observed(self) -> Observed | None:
        told = super().observed
        return None if told is None else replace(told, attention=self._attention)

    async def _score(
        self, work: Work[float], query: str, texts: Mapping[int, str]
    ) -> tuple[dict[int, float], StageCost]:
        with work.round(query, list(texts.values())) as round_:
            scores = await round_.done()
        sigmoid = self._onnx.activation is Activation.SIGMOID
        told = map(_sigmoid, scores) if sigmoid else scores
        return dict(zip(texts, told, strict=True)), round_.cost()

    def _check(self, loaded: LoadedCrossEncoder) -> None:
        """Refuse a model that does not answer as declared to fixed pairs. Raises ConfigError."""
        alone = loaded.alone
        if not self._batching.is_one_pair and loaded.batch_effect > TOLERANCE:
            raise ConfigError(
                f"batching: scores of this model move by up to {loaded.batch_effect:.2g} with their batch mates; "
                "use one-pair"
            )
        raw_probability = self._onnx.score_space is ScoreSpace.PROBABILITY and self._onnx.activation is Activation.NONE
        if raw_probability and not all(0 <= score <= 1 for score in alone):
            raise ConfigError(
                "activation: score_space says probability, and the model's output is not within 0 and 1; use sigmoid"
            )
        self._tell(loaded)

    def _tell(self, loaded: LoadedCrossEncoder) -> None:
        if not self._batching.is_one_pair:
            said = f"scores of fixed pairs move by at most {loaded.batch_effect:.1e} with their batch mates"
            note("info", "batch invariance", stage=self._name, said=said)
        if (why := loaded.why_exported) is not None:
            level: Literal["info", "warning"] = "warning" if why is WhyExported.OTHER_BITS else "info"
            note(level, "attention as exported", stage=self._name, why=str(why))
        if self._onnx.cached_token_bytes and isinstance(loaded.reader, JointReader):
            said = "the tokenizer does more than join a query and a document: token ids of documents are not kept"
            note("info", "token cache off", stage=self._name, said=said)


def _higher(first: float, second: float) -> float:
    """Return the higher score of two windows; none where one is no finite number, so that the round does not count."""
    return max(first, second) if math.isfinite(first) and math.isfinite(second) else math.nan


def _sigmoid(logit: float) -> float:
    """Return 1 / (1 + e^-x), in the form that does not overflow. What is no finite number is none afterwards."""
    if not math.isfinite(logit):
        return math.nan
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    return math.exp(logit) / (1 + math.exp(logit))
