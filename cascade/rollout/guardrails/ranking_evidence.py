"""Whether the candidate's order is worse than the stable release's, by pairs scored beside and by judged queries."""

from __future__ import annotations

from collections import Counter
from typing import Final

from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.told import Told, why_of
from cascade.rollout.guardrails.wager import Wager, least_to_pass

__all__ = ["RankingEvidence"]

_ENOUGH_TO_TELL: Final = 20


class RankingEvidence:
    """Wager on ranking losses in [-1, 1], above 0 where the candidate is worse.

    A pass gathers over all steps: load does not change an order. Harm is asked anew at each step, so that evidence of
    an early step does not stand against what a later one shows. ``cannot`` is why these losses cannot tell
    harm from another, better order, None where they can; then it says neither, and that. Where most of what could have been a
    pair is left out, ``why`` says what became of it: else a step would wait for evidence without a word.
    """

    def __init__(
        self,
        name: GuardrailName,
        limit: float,
        harm_alpha: float,
        pass_alpha: float,
        *,
        needed: bool,
        cannot: str | None = None,
    ) -> None:
        self.name = name
        self.needed = needed
        self._cannot = cannot
        self._limit = limit
        self._alphas = harm_alpha, pass_alpha
        self._whole = Wager(limit, harm_alpha, pass_alpha)
        self._step = Wager(limit, harm_alpha, pass_alpha)
        self._added = 0
        self._left_out: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Return how many losses were taken."""
        return self._whole.count

    @property
    def step_count(self) -> int:
        """Return how many were taken at this step."""
        return self._step.count

    @property
    def decides(self) -> bool:
        """Tell whether these losses can tell harm; where they cannot, there may be none at all."""
        return self._cannot is None

    @property
    def has_failed(self) -> bool:
        """Tell whether harm is shown."""
        return self.decides and self._step.shows_harm

    @property
    def verdict(self) -> GuardrailVerdict:
        """Return what is shown."""
        if not self.decides:
            return GuardrailVerdict.INCONCLUSIVE
        if self._step.shows_harm:
            return GuardrailVerdict.FAIL
        return GuardrailVerdict.PASS if self._whole.shows_pass else GuardrailVerdict.INCONCLUSIVE

    def add(self, loss: float) -> None:
        """Take one loss. Raises ConfigError for one that is no number in [-1, 1]."""
        self._whole.add(loss)
        self._step.add(loss)
        self._added += 1

    def left_out(self, outcome: str) -> None:
        """Take note of a request of which no loss is known, by what became of it: one of a closed list."""
        self._left_out[outcome] += 1

    def next_step(self) -> None:
        """Ask for harm anew."""
        self._step = Wager(self._limit, *self._alphas)

    def told(self) -> Told:
        """Return what it says, with its numbers."""
        verdict = self.verdict
        return Told(
            name=self.name,
            verdict=verdict,
            needed=self.needed,
            n=self._whole.count,
            stable=None,
            canary=None,
            difference=self._whole.mean,
            limit=self._limit,
            p_harm=self._step.p_harm,
            p_pass=self._whole.p_pass,
            harm_alpha=self._alphas[0],
            pass_alpha=self._alphas[1],
            why=self._cannot or self._why(verdict),
        )

    def _why(self, verdict: GuardrailVerdict) -> str:
        why = why_of(verdict, self._whole.count, least_to_pass(self._limit, self._alphas[1]))
        missing = self._left_out.total()
        if verdict is not GuardrailVerdict.INCONCLUSIVE or missing < max(_ENOUGH_TO_TELL, self._added):
            return why
        ((outcome, _),) = self._left_out.most_common(1)
        return f"{why}; starved: of {missing + self._added} in the sample {self._added} were compared, the rest mostly {outcome}"

    def state(self) -> list[list[float]]:
        """Return its numbers, to be restored from."""
        return [self._whole.state(), self._step.state()]

    def restore(self, state: list[list[float]]) -> None:
        """Take up what `state` returned."""
        for wager, kept in zip((self._whole, self._step), state, strict=True):
            wager.restore(kept)
