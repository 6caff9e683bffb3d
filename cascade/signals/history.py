"""How hard queries of a class were before, frozen with a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cascade.signals.channel import MISSING
from cascade.types import QueryClass

__all__ = ["History", "Seen", "difficulty"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The mean difficulty of ``count`` queries, in the unit that the release's fitting chose (nDCG lost)."""

    mean: float
    count: int


@dataclass(frozen=True, slots=True)
class History:
    """Numbers of a release: the difficulty of each class over all tenants, and of each tenant's classes.

    ``shrinkage`` is how many queries the class mean counts for against a tenant's own.
    """

    classes: Mapping[QueryClass, float]
    tenants: Mapping[str, Mapping[QueryClass, Seen]] = field(default_factory=dict)
    shrinkage: float = 50.0


def difficulty(history: History | None, query_class: QueryClass, tenant: str | None) -> float:
    """Return the tenant's mean for the class, shrunk to the class's: w own + (1 - w) class, w = n / (n + n0).

    A tenant that was not seen has its class's mean. Missing without history, or for a class without a mean.
    """
    if history is None or query_class not in history.classes:
        return MISSING
    of_class = history.classes[query_class]
    seen = history.tenants.get(tenant, {}).get(query_class) if tenant is not None else None
    if seen is None or not seen.count:
        return of_class
    own = seen.count / (seen.count + history.shrinkage)
    return own * seen.mean + (1.0 - own) * of_class
