"""Refuse what was made for another question, and tell what of an evaluation its reader must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration
from cascade.calibration.gain import CUTOFFS
from cascade.errors import ConfigError
from cascade.policy.escalation_rules import CalibratedEscalation, FusedEscalation
from cascade.replay.part import Part
from cascade.replay.policy import Policy
from cascade.replay.question import Question

__all__ = [
    "check_calibration",
    "check_conditions",
    "check_finished",
    "check_relevant",
    "failed_queries",
    "notes_of",
    "notes_of_policy",
    "unfinished",
]


def failed_queries(conditions: Mapping[str, Any]) -> int:
    """Return how many queries a table lacks because they failed when it was collected."""
    joined = conditions.get("joined")
    if isinstance(joined, list):
        return sum(failed_queries(each) for each in joined if isinstance(each, dict))
    counts = conditions.get("counts")
    failed = counts.get("failed") if isinstance(counts, dict) else None
    return failed if isinstance(failed, int) else 0


def unfinished(name: str, conditions: Mapping[str, Any]) -> str | None:
    """Return what is said of a table whose collecting was not finished, None where it was."""
    failed = failed_queries(conditions)
    return f"table {name}: {failed} queries failed when it was collected and are not in it" if failed else None


def check_finished(name: str, conditions: Mapping[str, Any], *, allowed: bool) -> None:
    """Raise ConfigError for a table whose collecting was not finished, unless that is allowed."""
    told = unfinished(name, conditions)
    if told and not allowed:
        raise ConfigError(f"{told}; run the same cascade collect again, or say --unfinished")


def check_conditions(name: str, conditions: Mapping[str, Any], question: Question) -> None:
    """Raise ConfigError for a table that was made for another k, or, unless the question allows it, not finished."""
    made_for = conditions.get("k")
    if isinstance(made_for, int) and made_for != question.k:
        raise ConfigError(f"table {name}: metadata cascade: it was made for k = {made_for}, and --k is {question.k}")
    check_finished(name, conditions, allowed=question.unfinished)


def check_calibration(calibration: Calibration | None, question: Question) -> None:
    """Raise ConfigError for a calibration that reads what the evaluation is not told of."""
    unread = set(calibration.channels if calibration else ()) - set(question.roles.first_stage)
    if unread:
        raise ConfigError(
            f"the calibration reads channels that the first stage does not name: {', '.join(sorted(unread))}"
        )


def check_relevant(without_relevant: NDArray[np.bool_]) -> None:
    """Raise ConfigError where no query (Q,) has a relevant document: every quality would be nought."""
    if without_relevant.all():
        raise ConfigError(f"column rel: none of the {without_relevant.size} queries has a relevant document")


def notes_of(part: Part, dropped: int, most: int, question: Question, calibration: Calibration | None) -> list[str]:
    """Return what is left out, what counts for nothing, and where the calibration is not at home."""
    roles = question.roles
    notes = [f"{dropped} queries that a reranker scored no candidate of are left out"] if dropped else []
    without = int(part.columns["fact.without_relevant"].sum())
    if without:
        notes.append(f"{without} queries have no relevant document and stay in every mean with 0")
    for role, name in (("small", roles.small), ("large", roles.large)):
        unscored = part.columns[f"fact.without_{role}"]
        if unscored.any():
            notes.append(
                f"{int(unscored.sum())} pairs of {int((unscored > 0).sum())} queries have no {role} score ({name}): "
                f"they stay candidates, behind those that have one"
            )
    if roles.depth is not None and most < roles.depth:
        notes.append(f"--depth is {roles.depth}, and no query has more than {most} candidates")
    return notes if calibration is None else [*notes, *_of_calibration(part, question, calibration)]


def _of_calibration(part: Part, question: Question, calibration: Calibration) -> list[str]:
    artefact, roles, notes = calibration.artefact, question.roles, []
    for role, fitted, evaluated in (
        ("small", artefact.small.name, roles.small),
        ("large", artefact.large.name, roles.large),
    ):
        if fitted != evaluated:
            notes.append(f"the calibration was fitted for {role} {fitted}, and {evaluated} is evaluated")
    if question.k not in artefact.cutoffs:
        cutoffs = ", ".join(map(str, CUTOFFS))
        notes.append(
            f"--k is {question.k}, and the calibration estimates the top {cutoffs}: what is fitted goes by the top "
            f"{artefact.k}, quality is at {question.k}"
        )
    seen = int(part.columns["fact.seen"].sum())
    if seen:
        notes.append(
            f"SEEN IN FITTING: {seen} of these queries trained the calibration, so that its figures are too good"
        )
    misfits = int(part.columns["fact.misfit"].sum())
    if misfits:
        notes.append(f"the calibration does not hold for the candidates of {misfits} queries: it does not decide there")
    return notes


def notes_of_policy(part: Part, policy: Policy | None, question: Question) -> list[str]:
    """Return what of a policy's rules does not go with the question or with the tables."""
    notes = []
    rule = None if policy is None else policy.escalation
    if isinstance(rule, CalibratedEscalation | FusedEscalation) and rule.k != question.k and question.k in CUTOFFS:
        notes.append(f"the policy decides for the top {rule.k}, and quality is at {question.k}")
    told = sorted(part.never_told)
    return [*notes, *(f"no table tells {name}: conditions on it never hold in this replay" for name in told)]
