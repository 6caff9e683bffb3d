"""Whether the scores of each stage that should be the same are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cascade.rollout.guardrails.drift import FIRST_LOOK, DriftWatch
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.told import Told
from cascade.types import StageName

__all__ = ["DriftEvidence"]

_NAMES: Final = {StageName.SMALL: GuardrailName.DRIFT_SMALL, StageName.LARGE: GuardrailName.DRIFT_LARGE}


class DriftEvidence:
    """A watch for each stage that scores the same candidates in both releases, with the same model."""

    def __init__(self, limit: float, alpha: float, not_compared: Mapping[StageName, str]) -> None:
        self._limit = limit
        self._alpha = alpha
        self._not_compared = dict(not_compared)
        self._small = self._watch(StageName.SMALL)
        self._large = self._watch(StageName.LARGE)

    def _watch(self, stage: StageName) -> DriftWatch | None:
        return None if stage in self._not_compared else DriftWatch(self._limit, self._alpha)

    def stable(self, observed: Observed) -> None:
        """Take an answer of the stable release."""
        if self._small is not None and observed.small_top is not None:
            self._small.stable(observed.small_top, observed.unit)
        if self._large is not None and observed.large_top is not None:
            self._large.stable(observed.large_top, observed.unit)

    def canary(self, observed: Observed) -> None:
        """Take an answer of the canary."""
        if self._small is not None and observed.small_top is not None:
            self._small.canary(observed.small_top, observed.unit)
        if self._large is not None and observed.large_top is not None:
            self._large.canary(observed.large_top, observed.unit)

    def look(self) -> None:
        """Compare where there is enough."""
        for watch in self._watches().values():
            watch.look()

    @property
    def has_failed(self) -> bool:
        """Tell whether a stage is shown to score otherwise."""
        return any(watch.verdict is GuardrailVerdict.FAIL for watch in self._watches().values())

    def told(self, *, needed: bool) -> Iterator[Told]:
        """Return what is said of both stages; one that is not compared is never needed."""
        for stage, name in _NAMES.items():
            watch = self._watches().get(stage)
            yield Told(
                name=name,
                verdict=GuardrailVerdict.INCONCLUSIVE if watch is None else watch.verdict,
                needed=needed and watch is not None,
                n=0 if watch is None else watch.looked_at or watch.count,
                stable=None,
                canary=None,
                difference=None if watch is None else watch.index,
                limit=self._limit,
                p_harm=None if watch is None else watch.p,
                p_pass=None,
                harm_alpha=self._alpha if watch is not None else None,
                pass_alpha=None,
                why=self._not_compared[stage] if watch is None else _why(watch),
            )

    def _watches(self) -> dict[StageName, DriftWatch]:
        both = {StageName.SMALL: self._small, StageName.LARGE: self._large}
        return {stage: watch for stage, watch in both.items() if watch is not None}

    def state(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {stage.value: watch.state() for stage, watch in self._watches().items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        for stage, watch in self._watches().items():
            watch.restore(state[stage.value])


def _why(watch: DriftWatch) -> str:
    if not watch.looks:
        return f"{watch.count} scores of each release; {FIRST_LOOK} are needed"
    match watch.verdict:
        case GuardrailVerdict.FAIL:
            return "the scores are shown to be others although the stage is the same"
        case GuardrailVerdict.PASS:
            return f"the scores were alike at {watch.looked_at} of each release"
        case GuardrailVerdict.INCONCLUSIVE:
            return f"the scores differ at {watch.looked_at} of each release, and no more than chance or units of traffic may do"
