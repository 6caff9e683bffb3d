"""Hold the stages of a release against the scorers whose columns a score table has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.rollout.identity import FINGERPRINT_FIELDS
from cascade.rollout.load import UNSET
from cascade.stages.fingerprint import completed, fingerprint_of
from cascade.stages.serializers import serializer

__all__ = ["not_scored_by"]

_OPTIONAL: Final = frozenset({"revision", "tokenizer_revision"})
"""Fields whose None means that nobody said."""


def not_scored_by(release: Release, conditions: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    """Return where the stages of a release are not what made the columns of a table, or cannot be held against it.

    ``columns`` names the column of each stage, and ``conditions`` are the table's own words. A serializer that does not
    exist is told as one thing more.
    """
    told = []
    for name, column in columns.items():
        spec = getattr(release.stages, name)
        if spec is None:
            continue
        scorer = conditions.get("scorers", {}).get(column, {})
        known = scorer.get("fingerprint") if isinstance(scorer, dict) else None
        if not isinstance(known, dict):
            told.append(f"the table does not tell what scored column {column}: the {name} stage may be another")
            continue
        try:
            declared = asdict(fingerprint_of(spec, serializer(spec.serializer)))
        except ConfigError as error:
            told.append(f"{name} stage: {error}")
            continue
        known = completed(known)
        other = [
            field for field in FINGERPRINT_FIELDS if field in known and _differ(field, declared[field], known[field])
        ]
        if other:
            words = "; ".join(f"{field} {declared[field]}, the column's {known[field]}" for field in other)
            told.append(f"its {name} stage is not what scored column {column}: {words}")
    return told


def _differ(field: str, declared: Any, scored: Any) -> bool:
    unsaid = field in _OPTIONAL and None in (declared, scored)
    unset = isinstance(declared, str) and UNSET in declared
    return not unsaid and not unset and declared != scored
