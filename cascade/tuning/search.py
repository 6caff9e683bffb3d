"""Search one variable at a time: threads, batches, precision, then by goodput the wait, the batch again, concurrency."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.release import OnePair, TokenBudget
from cascade.policy.tuning import Spread, Step
from cascade.tuning.allowance import Allowance, Least
from cascade.tuning.setting import Batching, Setting, batching_words
from cascade.tuning.trials import Metric, Option, spread_of, tried

__all__ = ["Bench", "Found", "Search", "thread_counts"]

_BUDGETS: Final = (256, 512, 1024, 2048, 4096)
_LEAST_TOKENS: Final = 16
_PAIRS: Final = (8, 16, 32, 64)
_WAITS_MS: Final = (0.0, 2.0, 4.0, 8.0)
_IN_FLIGHT: Final = (1, 2, 4, 8, 16)
_OPEN_WEIGHT: Final = 4.0
"""An open loop is measured for so many times as long: it counts requests, not pairs."""
_OVER_SECONDS: Final = 60.0
"""How much longer than asked a search may take before it is refused."""
_LOAD: Final = 0.9
"""Requests offered in an open loop, of those that the closed loop could do."""


class Bench(Protocol):
    """Measure settings. Each method raises ConfigError for one that cannot be run, and says why."""

    async def least_s(self, setting: Setting) -> Least:
        """Return how long the least trials of each kind take."""
        ...

    async def pairs_per_s(self, setting: Setting, repeat: int, seconds: float) -> float:
        """Return the pairs scored a second with as many requests as keep it busy."""
        ...

    async def goodput_per_s(self, setting: Setting, repeat: int, seconds: float, rate: float) -> float:
        """Return the requests answered by their deadline a second, where ``rate`` a second come at random."""
        ...

    async def unlike_first(self, weights: str) -> str | None:
        """Return why scores with these weights are not those of the first, None where they are."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to: the setting, its pairs a second, and every step."""

    setting: Setting
    pairs_per_s: Spread
    offered_per_s: float
    steps: tuple[Step, ...]


def thread_counts(cores: int) -> tuple[int, ...]:
    """Return the numbers of threads to try: as many as cores, which is the default, then fewer by powers of two."""
    return (cores, *(2**power for power in range(int(math.log2(cores)) + 1) if 2**power < cores))


class Search:
    """A search over one stage with the weights named, of which the first are the reference.

    ``mean_candidates`` is that of a request, ``told`` hears the estimate, and what comes next.
    """

    def __init__(
        self,
        bench: Bench,
        weights: Sequence[str],
        *,
        cores: int,
        mean_candidates: float,
        clock: Clock,
        seconds: float,
        repeats: int,
        seed: int,
        told: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._bench = bench
        self._weights = tuple(weights)
        self._cores = cores
        self._mean_candidates = mean_candidates
        self._clock = clock
        self._seconds = seconds
        self._repeats = repeats
        self._seed = seed
        self._told = told
        self._rate = 0.0
        self._steps: list[Step] = []
        self._unlike: dict[str, str] = {}

    async def run(self, start: Setting) -> Found:
        """Search from a setting, which ties go to.

        Raises ConfigError where nothing can be run, and where the least trials take far longer than there is time.
        """
        batches = len(_BUDGETS) + 2 + len(_PAIRS)
        closed = len(thread_counts(self._cores)) + (batches + 1) * len(self._weights) + 1
        opened = len(_WAITS_MS) + 3 + len(_IN_FLIGHT) + 1
        await self._estimate(start, closed, opened)
        self._allowance = Allowance(self._seconds, self._clock)
        self._plan(closed + opened * _OPEN_WEIGHT)
        at = await self._best("threads", "pairs_per_s", _threads(start, self._cores))
        at = await self._of_precisions([found async for found in self._each_batched(at)])
        self._told("throughput")
        seconds = self._seconds_each(1.0, 1)
        rates = [await self._bench.pairs_per_s(at, repeat, seconds) for repeat in range(self._repeats)]
        spread = spread_of(rates)
        self._rate = _LOAD * spread.median / self._mean_candidates
        return Found(await self._in_time(at), spread, self._rate, tuple(self._steps))

    async def _estimate(self, start: Setting, closed: int, opened: int) -> None:
        """Say how long it will take, from the least trials. Raises ConfigError where that is far more than asked."""
        self._told("load, check and estimate")
        least = await self._bench.least_s(start)
        seconds = self._repeats * (closed * least.closed_s + opened * least.open_s)
        trials = self._repeats * (closed + opened)
        if seconds > self._seconds + _OVER_SECONDS:
            raise ConfigError(
                f"--seconds {self._seconds:g}: {trials} trials of a request or two each take about {seconds:.0f} s here; "
                "give it as many, or fewer --candidates or --repeats, or a shorter --deadline-ms"
            )
        self._told(
            f"{trials} trials at most in about {max(self._seconds, seconds):.0f} s, {seconds:.0f} s at the least; "
            f"loading took {least.began_s:.1f} s"
        )

    async def _each_batched(self, at: Setting) -> AsyncIterator[Setting]:
        """Give the best batch with each of the weights whose scores are those of the first; of others keep why not."""
        for name in self._weights:
            if name != self._weights[0]:
                self._told(f"parity of {name}")
                why = await self._bench.unlike_first(name)
                if why is not None:
                    self._unlike[name] = why
                    continue
            yield await self._batched(replace(at, weights=name))

    async def _batched(self, at: Setting) -> Setting:
        of = "" if len(self._weights) == 1 else f" of {at.weights}"
        at = await self._best(f"batch{of}", "pairs_per_s", _batches(at))
        if isinstance(at.batching, TokenBudget):
            at = await self._best(f"max_pairs{of}", "pairs_per_s", _numbers(at, at.batching, "max_pairs", _PAIRS))
        return at

    async def _of_precisions(self, best: Sequence[Setting]) -> Setting:
        if len(self._weights) == 1:
            return best[0]
        by_name = {setting.weights: setting for setting in best}
        options = [Option(name, by_name.get(name, best[0]), self._unlike.get(name)) for name in self._weights]
        return await self._best("precision", "pairs_per_s", options)

    async def _in_time(self, at: Setting) -> Setting:
        batched = isinstance(at.batching, TokenBudget)
        self._plan(((len(_WAITS_MS) + 3 if batched else 0) + len(_IN_FLIGHT) + 1) * _OPEN_WEIGHT)
        if isinstance(at.batching, TokenBudget):
            at = await self._best("max_wait_ms", "goodput_per_s", _numbers(at, at.batching, "max_wait_ms", _WAITS_MS))
        if isinstance(at.batching, TokenBudget):
            budget = at.batching.max_total_tokens
            around = (max(_LEAST_TOKENS, budget // 2), budget * 2)
            at = await self._best(
                "max_total_tokens", "goodput_per_s", _numbers(at, at.batching, "max_total_tokens", around)
            )
        return await self._best("max_in_flight", "goodput_per_s", _concurrencies(at))

    async def _best(self, variable: str, metric: Metric, options: Sequence[Option]) -> Setting:
        self._told(variable)
        closed = metric == "pairs_per_s"
        seconds = self._seconds_each(1.0 if closed else _OPEN_WEIGHT, sum(option.refused is None for option in options))

        async def measure(setting: Setting, repeat: int) -> float:
            if closed:
                return await self._bench.pairs_per_s(setting, repeat, seconds)
            return await self._bench.goodput_per_s(setting, repeat, seconds, self._rate)

        found = await tried(
            variable, metric, options, measure, repeats=self._repeats, seed=self._seed + len(self._steps)
        )
        self._steps.append(found.step)
        return found.setting

    def _plan(self, weights: float) -> None:
        self._allowance.plan(weights * self._repeats)

    def _seconds_each(self, weight: float, options: int) -> float:
        """Return the time of each trial of a step: the same for all, so that the same requests come."""
        trials = max(1, options * self._repeats)
        return self._allowance.take(weight * trials) / trials


def _threads(start: Setting, cores: int) -> list[Option]:
    return [Option(str(count), replace(start, threads=count)) for count in thread_counts(cores)]


def _batches(at: Setting) -> list[Option]:
    """Return the batch that is there, then one pair a call, then budgets from the least on."""
    base = at.batching if isinstance(at.batching, TokenBudget) else TokenBudget(mode="token-budget")
    budgets = [base.model_copy(update={"max_total_tokens": budget}) for budget in _BUDGETS]
    own: list[Batching] = [at.batching, OnePair(mode="one-pair"), *budgets]
    named = {batching_words(batching): replace(at, batching=batching) for batching in reversed(own)}
    return [Option(value, named[value]) for value in dict.fromkeys(map(batching_words, own))]


def _numbers(at: Setting, batching: TokenBudget, name: str, values: Sequence[float]) -> list[Option]:
    """Return the number that is there, then the others in order."""
    own = getattr(batching, name)
    return [
        Option(f"{value:.10g}", replace(at, batching=batching.model_copy(update={name: type(own)(value)})))
        for value in dict.fromkeys((own, *values))
    ]


def _concurrencies(at: Setting) -> list[Option]:
    counts = dict.fromkeys((at.max_in_flight, *_IN_FLIGHT))
    return [Option(str(count), replace(at, max_in_flight=count)) for count in counts]
