"""What a guardrail says, with its numbers and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.wager import Wager

__all__ = ["Told", "verdict_of", "why_of"]


@dataclass(frozen=True, slots=True)
class Told:
    """One guardrail. ``needed`` tells whether the step waits for its pass.

    ``n`` counts the differences behind it; ``stable`` and ``canary`` are means where it has two. ``p_harm`` and
    ``p_pass`` hold whenever one looks; they are held against ``harm_alpha`` and ``pass_alpha``, None where it has none.
    """

    name: GuardrailName
    verdict: GuardrailVerdict
    needed: bool
    n: int
    stable: float | None
    canary: float | None
    difference: float | None
    limit: float
    p_harm: float | None
    p_pass: float | None
    harm_alpha: float | None
    pass_alpha: float | None
    why: str

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        told: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        return told | {"name": self.name.value, "verdict": self.verdict.value}


_FIELDS: Final = tuple(item.name for item in fields(Told))


def verdict_of(wager: Wager, *, by_release: bool) -> GuardrailVerdict:
    """Return what a wager shows; harm goes before a pass that was shown earlier.

    ``by_release`` is false where the units of traffic may be what is at fault: then harm is neither.
    """
    if wager.shows_harm:
        return GuardrailVerdict.FAIL if by_release else GuardrailVerdict.INCONCLUSIVE
    return GuardrailVerdict.PASS if wager.shows_pass else GuardrailVerdict.INCONCLUSIVE


def why_of(verdict: GuardrailVerdict, count: int, least: int | None) -> str:
    """Return the sentence for a wager's verdict; ``least`` is what a pass needs where nothing differs."""
    match verdict:
        case GuardrailVerdict.FAIL:
            return "it is shown to be beyond its limit"
        case GuardrailVerdict.PASS:
            return "it is shown to be within its limit"
        case GuardrailVerdict.INCONCLUSIVE:
            if least is None:
                return "a limit of 0 passes only where the candidate is shown to be better"
            if count < least:
                return f"{count} comparisons; a pass needs {least} at least, where nothing differs"
            return f"{count} comparisons show neither"
