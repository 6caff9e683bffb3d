"""Keep stages between trials: a model is loaded, and held against fixed pairs, once for one pair a call and once for batches."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.release import OnnxStage
from cascade.stages.engine.batching import batching_of
from cascade.stages.engine.workers import Workers, worker_pool
from cascade.stages.onnx import OnnxReranker
from cascade.stages.onnx_loaded import LoadedCrossEncoder
from cascade.stages.weights import find_model
from cascade.tuning.setting import Batching, Setting

__all__ = ["KeptStages", "StartedStage"]

_MOST_BYTES: Final = 512 * 2**20
_Use = tuple[str, bool]
"""The name of weights, and whether every pair is a call of its own."""


class StartedStage:
    """A stage that was started, with threads of its own."""

    def __init__(self, stage: OnnxReranker, workers: Workers) -> None:
        self.stage = stage
        self._workers = workers

    @classmethod
    async def start(
        cls, name: str, spec: OnnxStage, setting: Setting, clock: Clock, loaded: LoadedCrossEncoder | None = None
    ) -> StartedStage:
        """Start a stage as a setting has it, on a model that is loaded, or load one.

        Raises ConfigError; nothing is left open then.
        """
        workers = worker_pool(setting.threads)
        batched = spec.model_copy(update={"batching": setting.batching})
        stage = OnnxReranker(name, batched, workers, clock, loaded=loaded)
        started = cls(stage, workers)
        try:
            await stage.start()
        except BaseException:
            await started.aclose()
            raise
        return started

    async def aclose(self) -> None:
        """Give back the stage and the threads."""
        await self.stage.aclose()
        self._workers.close()


class KeptStages:
    """Started stages by the setting that they were started with, on models loaded once for one pair a call and once for batches.

    One pair a call runs the attention that the stage would serve with: the exact form where it scores the same bits.

    Models used last stay, within ``most_bytes`` of their files, and with each what was started on it. One in use stays
    whatever its size. Weights that are refused one pair a call, or in batches, are refused at once from then on, with the same words:
    what they are refused for is no number of it.
    """

    def __init__(
        self, name: str, specs: Mapping[str, OnnxStage], clock: Clock, *, most_bytes: int = _MOST_BYTES
    ) -> None:
        self._name = name
        self._specs = specs
        self._clock = clock
        self._most_bytes = most_bytes
        self._models: OrderedDict[_Use, LoadedCrossEncoder] = OrderedDict()
        self._started: dict[tuple[str, int, Batching], StartedStage] = {}
        self._refused: dict[_Use, str] = {}
        self._bytes = {name: find_model(spec.weights).model.stat().st_size for name, spec in specs.items()}

    @property
    def loaded(self) -> tuple[str, ...]:
        """Return the names of the weights that are in memory."""
        return tuple(dict.fromkeys(weights for weights, _ in self._models))

    async def get(self, setting: Setting) -> tuple[StartedStage, bool]:
        """Return the stage of a setting, and whether it was started for this. Raises ConfigError."""
        key = (setting.weights, setting.threads, setting.batching)
        found = self._started.get(key)
        use = (setting.weights, _is_one_pair(setting.batching))
        if found is not None:
            self._models.move_to_end(use)
            return found, False
        if use in self._refused:
            raise ConfigError(self._refused[use])
        spec = self._specs[setting.weights]
        try:
            model = await self._model(use, spec.model_copy(update={"batching": setting.batching}))
            made = await StartedStage.start(self._name, spec, setting, self._clock, model)
        except ConfigError as error:
            self._refused[use] = str(error)
            raise
        self._started[key] = made
        return made, True

    async def aclose(self) -> None:
        """Give all back."""
        await self._leave(-1)

    async def _model(self, use: _Use, spec: OnnxStage) -> LoadedCrossEncoder:
        """Return a model, loaded where it is not there. Raises ConfigError."""
        if use not in self._models:
            await self._leave(self._most_bytes - self._bytes[use[0]])
            self._models[use] = await asyncio.to_thread(LoadedCrossEncoder, spec)
        self._models.move_to_end(use)
        return self._models[use]

    async def _leave(self, most: int) -> None:
        """Let go of those used longest ago until the rest has at most so many bytes."""
        while self._models and sum(self._bytes[weights] for weights, _ in self._models) > most:
            use, _ = self._models.popitem(last=False)
            for key in [key for key in self._started if (key[0], _is_one_pair(key[2])) == use]:
                await self._started.pop(key).aclose()


def _is_one_pair(batching: Batching) -> bool:
    return batching_of(batching).is_one_pair
