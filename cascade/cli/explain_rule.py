"""Say by which rule of its release a decision was taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cascade.cli.explain_line import ExplainedEstimates, ExplainedLine
from cascade.policy.boundary import at_least, at_most
from cascade.policy.escalation_rules import Accept, CalibratedEscalation
from cascade.policy.levels import at_level, level_names
from cascade.rollout.load import LoadedRelease
from cascade.rollout.words import depth_words, escalation_words, time_words

__all__ = ["is_of", "rule_words"]


def rule_words(line: ExplainedLine, head: Mapping[str, Any] | None, loaded: LoadedRelease) -> tuple[str, ...]:
    """Return the rules of a release at the decision's load level; or that it is not the release that decided."""
    if not is_of(line, head, loaded):
        return (f"release {loaded.release.release}, {loaded.digest}, is not the one that decided this",)
    if line.load_level not in level_names(loaded.release):
        return (f"the release has no load level {line.load_level}",)
    release = at_level(loaded.release, line.load_level)
    said = [f"depth: {depth_words(release.depth)}", f"escalation: {escalation_words(release.escalation)}"]
    rule = release.escalation
    estimates = line.would.estimates if line.would is not None else line.estimates
    if isinstance(rule, CalibratedEscalation) and rule.accept is not None and estimates is not None:
        said += _thresholds(rule.accept, estimates, rule.margin_noise)
    return (*said, f"time: {time_words(release.budgets)}")


def is_of(line: ExplainedLine, head: Mapping[str, Any] | None, loaded: LoadedRelease) -> bool:
    """Tell whether a release decided: by its digest where that is known, else by its name."""
    if head is None:
        return line.release == loaded.release.release
    return bool(head.get("release_digest") == loaded.digest)


def _thresholds(accept: Accept, told: ExplainedEstimates, noise: float) -> Iterator[str]:
    if accept.margin_at_least is not None and told.margin is not None:
        holds = at_least(told.margin, accept.margin_at_least, noise)
        cleared = f", to be cleared by the noise of {noise:g}" if noise else ""
        yield f"margin {told.margin:.4g}, at least {accept.margin_at_least:g} is wanted{cleared}: {_holds(holds)}"
    if accept.entropy_at_most is not None and told.entropy is not None:
        holds = at_most(told.entropy, accept.entropy_at_most)
        yield f"entropy {told.entropy:.4g}, at most {accept.entropy_at_most:g} is wanted: {_holds(holds)}"
    if accept.expected_loss_at_most is not None and told.expected_loss is not None:
        holds = at_most(told.expected_loss, accept.expected_loss_at_most)
        yield f"expected loss {told.expected_loss:.4g}, at most {accept.expected_loss_at_most:g} is wanted: {_holds(holds)}"


def _holds(holds: bool) -> str:
    return "holds" if holds else "does not hold"
