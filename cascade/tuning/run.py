"""Tune a stage from beginning to end, and say under which conditions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Final, Protocol

from cascade.guard.deadline import Clock
from cascade.policy.release import OnnxStage
from cascade.policy.tuning import FORMAT, Asked, Chosen, Cold, Conditions, Tuning, Warm, WeightsUsed
from cascade.stages.machine import this_machine
from cascade.tuning.lengths import LengthSamples
from cascade.tuning.search import Bench, Found, Search
from cascade.tuning.setting import Setting
from cascade.types import StageName

__all__ = ["Question", "TimedBench", "tune_stage"]

_QUIET_SHARE: Final = 0.25
"""Of the cores, busy with something else."""
_FEW_REQUESTS: Final = 20
"""With fewer arrivals in a trial, goodput moves by more than a twentieth for each of them."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is tuned: a stage with each of some weights, of which the first are the reference, and the digests of their files.

    ``max_in_flight`` is what the setting is.
    """

    stage: StageName
    specs: Mapping[str, OnnxStage]
    sha256: Mapping[str, Mapping[str, str]]
    candidates: Sequence[int]
    deadline_ms: float
    max_in_flight: int
    seconds: float
    repeats: int
    seed: int


class TimedBench(Bench, Protocol):
    """Measure settings, and what is told beside the search."""

    @property
    def fewest_arrivals(self) -> int | None:
        """Return how many requests came in an open loop at the least, None before any."""
        ...

    async def cold(self, setting: Setting, repeats: int) -> Cold:
        """Time starts with a setting."""
        ...

    async def warm(self, setting: Setting, repeats: int) -> tuple[Warm, ...]:
        """Time requests that are alone."""
        ...


async def tune_stage(
    question: Question,
    lengths: LengthSamples,
    bench: TimedBench,
    *,
    clock: Clock,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    told: Callable[[str], None] = lambda what: None,
) -> Tuning:
    """Search, then time cold starts and requests alone with what was chosen. Raises ConfigError."""
    conditions = _conditions(now())
    reference, spec = next(iter(question.specs.items()))
    search = Search(
        bench,
        tuple(question.specs),
        cores=conditions.cores,
        mean_candidates=fmean(question.candidates),
        clock=clock,
        seconds=question.seconds,
        repeats=question.repeats,
        seed=question.seed,
        told=told,
    )
    found = await search.run(Setting(conditions.cores, spec.batching, reference, question.max_in_flight))
    told("cold and warm")
    cold = await bench.cold(found.setting, question.repeats)
    warm = await bench.warm(found.setting, question.repeats)
    setting = found.setting
    return Tuning(
        format=FORMAT,
        stage="small" if question.stage is StageName.SMALL else "large",
        model=spec.model,
        max_length=spec.max_length,
        weights=WeightsUsed(name=setting.weights, sha256=dict(question.sha256[setting.weights])),
        conditions=conditions,
        lengths=lengths.told(),
        asked=Asked(
            candidates=tuple(question.candidates),
            deadline_ms=question.deadline_ms,
            seconds=question.seconds,
            repeats=question.repeats,
            seed=question.seed,
        ),
        offered_per_s=round(found.offered_per_s, 6),
        steps=found.steps,
        cold=cold,
        warm=warm,
        chosen=Chosen(
            threads=setting.threads,
            max_in_flight=setting.max_in_flight,
            batching=setting.batching,
            pairs_per_s=found.pairs_per_s,
        ),
        notes=tuple(_notes(question, found, conditions, warm, bench.fewest_arrivals)),
    )


def _conditions(date: datetime) -> Conditions:
    machine = this_machine()
    load = None
    with suppress(OSError, AttributeError):
        load = round(os.getloadavg()[0], 2)
    return Conditions(
        date=date,
        cascade=machine.cascade,
        python=machine.python,
        onnxruntime=machine.onnxruntime,
        tokenizers=machine.tokenizers,
        os=machine.os,
        cpu=machine.cpu,
        instructions=machine.instructions,
        cores=machine.cores,
        load_average=load,
    )


def _notes(
    question: Question, found: Found, conditions: Conditions, warm: Sequence[Warm], fewest: int | None
) -> Iterator[str]:
    """Say what the figures do not: what the release must change, and what makes them uncertain."""
    name, spec = next(iter(question.specs.items()))
    setting = found.setting
    if setting.weights != name:
        yield f"weights {setting.weights} were chosen: they are another model version; name them and their quantization"
    if setting.batching.mode != spec.batching.mode:
        yield f"the release says batching {spec.batching.mode}: it must say {setting.batching.mode} to run as tuned"
    for each in warm:
        if each.request_ms.median > question.deadline_ms:
            taken = f"{each.request_ms.median:.0f} ms"
            yield f"{each.candidates} candidates alone take {taken}, more than the deadline of {question.deadline_ms:g} ms"
    if fewest is not None and fewest < _FEW_REQUESTS:
        yield f"as few as {fewest} requests came in a trial of goodput: give it more --seconds"
    load = conditions.load_average
    if load is not None and load > _QUIET_SHARE * conditions.cores:
        yield f"the machine was not quiet: its load average was {load:g} before the first trial"
