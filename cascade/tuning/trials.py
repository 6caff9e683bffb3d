"""Try the values of one variable, in turns, and choose: a lead within the spread goes to the value that stands first."""

from __future__ import annotations

import random
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cascade.errors import ConfigError
from cascade.policy.tuning import Spread, Step, Trial
from cascade.tuning.setting import Setting

__all__ = ["Metric", "Option", "Tried", "spread_of", "tried"]

Metric = Literal["pairs_per_s", "goodput_per_s"]
_DIGITS: Final = 6
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Option:
    """One value of a variable, and the setting that it makes. ``refused`` says why it is not tried at all."""

    value: str
    setting: Setting
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """A step that was gone through: what it is in the file, and the setting chosen."""

    step: Step
    setting: Setting


async def tried(
    variable: str,
    metric: Metric,
    options: Sequence[Option],
    measure: Callable[[Setting, int], Awaitable[float]],
    *,
    repeats: int,
    seed: int,
) -> Tried:
    """Measure every option ``repeats`` times, each repeat all of them in another order, so that drift hits all alike.

    ``measure`` is given the setting and the number of the repeat; more is better. Where it raises ConfigError the option
    is refused, and why is kept. The first option that is not refused is what ties go to. Raises ConfigError where
    every option is refused.
    """
    draw = random.Random(seed)  # noqa: S311  # nosec B311 # an order, not a secret
    refused = {option.value: option.refused for option in options if option.refused is not None}
    found: dict[str, list[float]] = {option.value: [] for option in options}
    for repeat in range(repeats):
        for option in draw.sample(options, len(options)):
            if option.value in refused:
                continue
            try:
                found[option.value].append(await measure(option.setting, repeat))
            except ConfigError as error:
                refused[option.value] = str(error)
    trials = [
        Trial(value=option.value, refused=refused[option.value][:_LONGEST])
        if option.value in refused
        else Trial(value=option.value, measured=spread_of(found[option.value]))
        for option in options
    ]
    chosen, why = _chosen(trials)
    step = Step(variable=variable, metric=metric, trials=tuple(trials), chosen=chosen, why=why)
    return Tried(step, next(option.setting for option in options if option.value == chosen))


def spread_of(values: Sequence[float]) -> Spread:
    """Return the median, the least and the most of some measurements."""
    rounded = [round(value, _DIGITS) for value in values]
    return Spread(
        median=round(statistics.median(rounded), _DIGITS), least=min(rounded), most=max(rounded), n=len(rounded)
    )


def _chosen(trials: Sequence[Trial]) -> tuple[str, str]:
    """Return the value chosen, and why in words.

    A value ties with the best where their spreads meet. The first value stays where it is one of those; else of those that are
    beyond its spread, as the best is, the one that stands first is chosen.
    """
    measured = [(trial.value, trial.measured) for trial in trials if trial.measured is not None]
    if not measured:
        raise ConfigError("; ".join(dict.fromkeys(f"{trial.value}: {trial.refused}" for trial in trials)))
    if len(measured) == 1:
        return measured[0][0], "nothing else could be measured"
    best, top = max(measured, key=lambda item: item[1].median)
    if not top.most > 0:
        return measured[0][0], "nothing was measured above 0: the first value stands"
    tied = [(value, spread) for value, spread in measured if spread.most >= top.least]
    first, was = measured[0]
    value, spread = next((value, spread) for value, spread in tied if value == first or spread.least > was.most)
    if value == best:
        ties = [name for name, _ in tied if name != best]
        return best, f"the best median, in a tie with {', '.join(ties)}"[:_LONGEST] if ties else "the best median"
    return value, f"a tie within the spread with {best}, {top.median:g} to {spread.median:g}"
