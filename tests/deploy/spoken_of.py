"""Find what a PromQL expression speaks of that is not there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Expr, Matcher, MatchOp, VectorSelector

__all__ = ["unknown"]

_SCRAPED: Final = frozenset({"instance", "job", "namespace", "pod"})
"""Labels that Prometheus, or its operator, adds to each series."""
_OPEN: Final = frozenset({"digest", "release", "replicaset", "version"})
"""Labels whose values are not of a closed list."""


def unknown(
    expression: str, series: Mapping[str, Mapping[str, AbstractSet[str]]], made: AbstractSet[str] = frozenset()
) -> list[str]:
    """Return what is not there: a name, a label, a label's value. ``made`` are labels that the expression makes.

    Raises ValueError where the expression does not parse.
    """
    selectors: list[VectorSelector] = []
    grouped: set[str] = set()

    def visit(node: Expr) -> None:
        if isinstance(node, VectorSelector):
            selectors.append(node)
        elif isinstance(node, AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)
        elif isinstance(node, BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            grouped.update(node.modifier.matching.labels)

    promql_parser.walk(promql_parser.parse(expression), visit)
    assert selectors, expression
    missing = []
    known = set(_SCRAPED | made)
    for selector in selectors:
        if selector.name is None or selector.name not in series:
            missing.append(f"metric {selector.name}")
            continue
        labels = series[selector.name]
        known.update(labels)
        missing += [
            f"{selector.name}: {matcher}" for matcher in selector.matchers.matchers if not _there(matcher, labels)
        ]
    return missing + [f"label {label}" for label in sorted(grouped - known)]


def _there(matcher: Matcher, labels: Mapping[str, AbstractSet[str]]) -> bool:
    if matcher.name in _SCRAPED:
        return True
    if matcher.name not in labels or matcher.name in _OPEN:
        return matcher.name in labels
    regex = matcher.op in (MatchOp.Re, MatchOp.NotRe)  # no set: they have no hash
    values = set(re.split(r"\|", matcher.value)) if regex else {matcher.value}
    return values <= labels[matcher.name]
