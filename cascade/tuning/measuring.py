"""Measure settings on the stage that serves, with requests of the user's lengths."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from cascade.guard.deadline import Clock, Deadline
from cascade.policy.release import OnnxStage
from cascade.policy.tuning import Cold, Warm
from cascade.stages.onnx import OnnxReranker
from cascade.tuning.allowance import Least
from cascade.tuning.kept_stages import KeptStages, StartedStage
from cascade.tuning.lengths import LengthSamples
from cascade.tuning.loads import Arrival, Score, arrivals, closed_loop, open_loop
from cascade.tuning.setting import Setting
from cascade.tuning.texts import Words, WrittenRequest
from cascade.tuning.trials import spread_of

__all__ = ["StageBench", "UnlikeFirst", "read_tokens", "requests_at_a_time"]

UnlikeFirst = Callable[[str], Awaitable[str | None]]
"""Return why scores with the weights of a name are not those of the first, None where they are."""

_WARM_UP: Final = 4
"""Candidates of the request that comes before any that is timed."""
_DEADLINES: Final = 1.5
"""How long an open loop takes at the least: requests come for a deadline's time, and the last of them has as long again."""
_PATIENCE_MS: Final = 120_000.0
_ALONE_MS: Final = 3_600_000.0
"""How long a request may take that is alone: however many candidates were asked for."""
_FILLING: Final = 40
"""Pairs under way at the least in a closed loop: batches are of those of other requests too."""
_MOST_UNDER_WAY: Final = 4096
"""Half of the pairs that may wait before the engine takes no more."""


def read_tokens(spec: OnnxStage) -> int:
    """Return the tokens of a pair beyond which a stage reads nothing."""
    return spec.max_length * (1 if spec.windows is None else spec.windows.most)


def requests_at_a_time(threads: int, candidates: int) -> int:
    """Return how many requests of so many candidates keep threads busy, and batches full, all the time."""
    wanted = max(threads, -(-_FILLING // candidates))
    return max(2, min(wanted, _MOST_UNDER_WAY // candidates))


class StageBench:
    """Load stages, warm them up, and measure; `aclose` gives back what is loaded.

    ``name`` is the stage, ``specs`` it with each of the weights by name, ``words`` what texts are made of. Repeats of every setting
    see requests of the same lengths and arrivals, and never the same text twice. ``fewest_arrivals`` is how many requests
    came in an open loop at the least, None before any.
    """

    def __init__(
        self,
        name: str,
        specs: Mapping[str, OnnxStage],
        words: Words,
        lengths: LengthSamples,
        *,
        candidates: Sequence[int],
        deadline_ms: float,
        seed: int,
        clock: Clock,
        unlike_first: UnlikeFirst,
    ) -> None:
        self._name = name
        self._specs = specs
        self._words = words
        self._lengths = lengths
        self._kept = KeptStages(name, specs, clock)
        self._most_tokens = max(map(read_tokens, specs.values()))
        self._candidates = tuple(candidates)
        self._deadline_ms = deadline_ms
        self._seed = seed
        self._clock = clock
        self._unlike_first = unlike_first
        self._draw = random.Random(seed)  # noqa: S311  # nosec B311 # words, not secrets
        self._calls = itertools.count(1)
        self.fewest_arrivals: int | None = None

    async def least_s(self, setting: Setting) -> Least:
        """Time the least trial of the closed loop; one of the open loop takes a deadline or two."""
        began = self._clock()
        await self._running(setting)
        loaded = self._clock()
        await self.pairs_per_s(setting, 0, 0.0)
        closed_s = self._clock() - loaded
        return Least(began_s=loaded - began, closed_s=closed_s, open_s=_DEADLINES * self._deadline_ms / 1000)

    async def pairs_per_s(self, setting: Setting, repeat: int, seconds: float) -> float:
        requests = self._requests(itertools.cycle((min(self._candidates),)), repeat)
        score = await self._running(setting)
        concurrent = requests_at_a_time(setting.threads, min(self._candidates))
        return await closed_loop(score, requests, concurrent=concurrent, seconds=seconds, clock=self._clock)

    async def goodput_per_s(self, setting: Setting, repeat: int, seconds: float, rate: float) -> float:
        seconds = max(seconds, self._deadline_ms / 1000)
        times = arrivals(rate, seconds, self._seed + repeat)
        self.fewest_arrivals = min(len(times), self.fewest_arrivals or len(times))
        counts = random.Random(self._seed + repeat).choices(self._candidates, k=len(times))  # noqa: S311  # nosec B311 # numbers of documents
        coming = list(map(Arrival, times, self._requests(counts, repeat)))
        score = await self._running(setting)
        return await open_loop(
            score,
            coming,
            deadline_ms=self._deadline_ms,
            max_in_flight=setting.max_in_flight,
            seconds=seconds,
            clock=self._clock,
        )

    async def unlike_first(self, weights: str) -> str | None:
        return await self._unlike_first(weights)

    async def cold(self, setting: Setting, repeats: int) -> Cold:
        """Time starts with a setting: loading, and a first call of one pair."""
        await self._kept.aclose()
        loads, calls = [], []
        for repeat in range(repeats):
            request = next(self._requests((1,), repeat))
            began = self._clock()
            started = await StartedStage.start(self._name, self._specs[setting.weights], setting, self._clock)
            try:
                loaded = self._clock()
                await self._score(started.stage)(request, Deadline.after_ms(_PATIENCE_MS, self._clock))
                loads.append((loaded - began) * 1000)
                calls.append((self._clock() - loaded) * 1000)
            finally:
                await started.aclose()
        return Cold(load_ms=spread_of(loads), first_call_ms=spread_of(calls))

    async def warm(self, setting: Setting, repeats: int) -> tuple[Warm, ...]:
        """Time requests that are alone, of each number of candidates in turn."""
        taken: dict[int, list[float]] = {count: [] for count in self._candidates}
        score = await self._running(setting)
        for repeat in range(repeats):
            for count, request in zip(taken, self._requests(taken, repeat), strict=True):
                began = self._clock()
                await score(request, Deadline.after_ms(_ALONE_MS, self._clock))
                taken[count].append((self._clock() - began) * 1000)
        return tuple(Warm(candidates=count, request_ms=spread_of(each)) for count, each in taken.items())

    async def aclose(self) -> None:
        """Give back what is loaded."""
        await self._kept.aclose()

    def _requests(self, counts: Iterable[int], repeat: int) -> Iterator[WrittenRequest]:
        for lengths in self._lengths.requests(counts, self._seed + repeat, self._most_tokens):
            yield self._words.request(lengths, self._draw)

    async def _running(self, setting: Setting) -> Score:
        """Return what scores with a setting, warmed up."""
        kept, is_new = await self._kept.get(setting)
        score = self._score(kept.stage)
        if is_new:
            await score(next(self._requests((_WARM_UP,), 0)), Deadline.after_ms(_PATIENCE_MS, self._clock))
        return score

    def _score(self, stage: OnnxReranker) -> Score:
        async def score(request: WrittenRequest, deadline: Deadline) -> None:
            call = f"tune-{next(self._calls)}"
            await stage.score(request.query, request.documents, deadline=deadline, call_id=call)

        return score
