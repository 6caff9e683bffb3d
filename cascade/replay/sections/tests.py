"""Whether differences between policies could be chance, overall, by table and in the mean of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.errors import ConfigError
from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, figure, resampled
from cascade.replay.report import number
from cascade.replay.sections.claims import non_inferiority, power
from cascade.statistics.effect import effect
from cascade.statistics.holm import holm
from cascade.statistics.permutation import FLIPS, sign_flip_test

__all__ = ["told"]

_SUBJECTS: Final = ("policy", "static")
_BASELINES: Final = ("large", "static-final", "static-fused", "static", "small", "first-stage")
_ROUNDING: Final = 1e-9
_METHOD: Final = (
    "Differences are of means over queries, paired. p: sign-flip permutation test, two-sided. p_holm: Holm's step-down, "
    "over the comparisons in pairs and in macro, over the tables in per_table. Every table counts the same in macro. "
    "effect_size: mean over standard deviation of the differences, with Hedges' correction. "
    "shown: by p_betting, which holds at any number of queries; p is asymptotic. Where a setting was chosen on these "
    "queries (chosen, in policies), what is said of it is optimistic."
)
_NO_SPREAD: Final = "the differences do not vary, or are fewer than three"


def told(
    quality: Mapping[str, FloatArray], tables: Sequence[str], resamples: int, seed: int, flips: int = FLIPS
) -> dict[str, Any]:
    """Return the report's ``tests`` of the quality (Q,) of policies by name, and the table of each query (Q,).

    Tested is ``policy``, or ``static`` where there is none, against every other policy that could be
    served, and ``large`` against ``small``. Quality is in [0, 1]; a loss is that of ``large`` less the policy's.
    Raises ConfigError for NaN, infinite or missing quality, naming the policy, the table and the query's row.
    """
    if not len(tables):
        raise ConfigError("tests: there are no queries")
    found = {name: _checked(name, values, tables) for name, values in quality.items()}
    subject = next((name for name in _SUBJECTS if name in found), _SUBJECTS[-1])
    for name in (subject, "large", "small"):
        if name not in found:
            raise ConfigError(f"tests: there is no quality of {name}")
    compared = [(subject, other) for other in _BASELINES if other in found and other != subject]
    compared.append(("large", "small"))
    pool = _Pool(
        names=tuple(found),
        quality=np.stack([*found.values()]),
        compared=tuple(compared),
        differences=np.stack([_difference(found[ours], found[theirs]) for ours, theirs in compared]),
    )
    labels = np.asarray(tables)
    parts = {name: pool.take(labels == name) for name in dict.fromkeys(tables)}
    drawn = [part.draws(resamples, seed + at) for at, part in enumerate(parts.values())]
    losses = -pool.differences[compared.index((subject, "large"))]
    sections = {
        "pairs": _tested(pool, pool.draws(resamples, seed), seed, flips),
        "non_inferiority": non_inferiority(subject, losses, seed, flips),
        "power": power(subject, losses),
        "per_table": _per_table(parts, drawn, seed, flips),
        "macro": _macro(pool, labels, parts, np.mean(drawn, axis=0), seed, flips),
    }
    return {"subject": subject, "method": _METHOD, "flips": flips, **_rounded(sections)}


@dataclass(frozen=True, slots=True)
class _Pool:
    """Some queries: quality of N policies (N, Q), and the P differences compared (P, Q)."""

    names: tuple[str, ...]
    quality: FloatArray
    compared: tuple[tuple[str, str], ...]
    differences: FloatArray

    @property
    def queries(self) -> int:
        return int(self.quality.shape[1])

    def take(self, chosen: NDArray[np.bool_]) -> _Pool:
        return _Pool(self.names, self.quality[:, chosen], self.compared, self.differences[:, chosen])

    def draws(self, resamples: int, seed: int) -> FloatArray:
        """Return mean quality and mean differences, in the sample and its resamples (1 + B, N + P)."""
        return resampled(self.queries, resamples, seed).means(np.concatenate([self.quality, self.differences]))


def _checked(name: str, values: FloatArray, tables: Sequence[str]) -> FloatArray:
    if values.shape != (len(tables),):
        raise ConfigError(f"tests: the quality of {name} is not one number for each of {len(tables)} queries")
    wrong = np.flatnonzero(~((values >= -_ROUNDING) & (values <= 1.0 + _ROUNDING)))
    if wrong.size:
        at = int(wrong[0])
        raise ConfigError(
            f"tests: the quality of {name} is no number in [0, 1] for {wrong.size} queries, "
            f"first for query {at} (table {tables[at]})"
        )
    return np.clip(values, 0.0, 1.0)


def _difference(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """Return paired differences, zero where only rounding tells the two apart."""
    return np.where(np.abs(ours - theirs) <= _ROUNDING, 0.0, ours - theirs)


def _tested(pool: _Pool, draws: FloatArray, seed: int, flips: int) -> list[dict[str, Any]]:
    """Return a row for each comparison, adjusted over them."""
    p = [sign_flip_test(each, seed=seed, flips=flips).p for each in pool.differences]
    rows = []
    for at, adjusted in enumerate(holm(p).tolist()):
        row = {**_row(pool, at, draws, pool.queries), "p": p[at], "p_holm": adjusted}
        found = effect(pool.differences[at])
        if found.size is None:
            row["reasons"]["effect_size"] = _NO_SPREAD
        rows.append(
            {**row, "effect_size": found.size, "better": found.better, "worse": found.worse, "equal": found.equal}
        )
    return rows


def _row(pool: _Pool, at: int, draws: FloatArray, queries: int) -> dict[str, Any]:
    name, baseline = pool.compared[at]
    found = figure(draws[:, len(pool.names) + at], queries, "")
    return {
        "name": name,
        "baseline": baseline,
        "difference": found.value,
        "interval": _interval(found),
        "reasons": {"interval": found.reason} if found.reason else {},
    }


def _per_table(parts: Mapping[str, _Pool], drawn: Sequence[FloatArray], seed: int, flips: int) -> list[dict[str, Any]]:
    """Return the means and tests of each table, each comparison adjusted over the tables."""
    rows = [_tested(part, draws, seed, flips) for part, draws in zip(parts.values(), drawn, strict=True)]
    for at in range(len(rows[0])):
        for row, adjusted in zip(rows, holm([row[at]["p"] for row in rows]).tolist(), strict=True):
            row[at]["p_holm"] = adjusted
    return [
        {"table": name, "queries": part.queries, **_means(part, draws, part.queries), "pairs": row}
        for (name, part), draws, row in zip(parts.items(), drawn, rows, strict=True)
    ]


def _macro(
    pool: _Pool, labels: NDArray[np.str_], parts: Mapping[str, _Pool], draws: FloatArray, seed: int, flips: int
) -> dict[str, Any]:
    """Return means over tables of their means, resampled within tables; the test flips signs of weighted queries."""
    fewest = min(part.queries for part in parts.values())
    weights = np.empty(pool.queries)
    for name, part in parts.items():
        weights[labels == name] = pool.queries / (len(parts) * part.queries)
    p = [sign_flip_test(each, seed=seed, flips=flips).p for each in pool.differences * weights]
    rows = [
        {**_row(pool, at, draws, fewest), "p": p[at], "p_holm": adjusted}
        for at, adjusted in enumerate(holm(p).tolist())
    ]
    return {"tables": len(parts), **_means(pool, draws, fewest), "pairs": rows}


def _means(pool: _Pool, draws: FloatArray, queries: int) -> dict[str, Any]:
    found = {name: figure(draws[:, at], queries, "") for at, name in enumerate(pool.names)}
    return {
        "means": {name: each.value for name, each in found.items()},
        "intervals": {name: _interval(each) for name, each in found.items()},
        "reasons": {name: each.reason for name, each in found.items() if each.reason},
    }


def _interval(found: Figure) -> list[float | None] | None:
    return None if found.interval is None else list(found.interval)


def _rounded(node: Any) -> Any:
    """Return plain data with every number as a report has it."""
    if isinstance(node, dict):
        return {key: _rounded(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_rounded(value) for value in node]
    return number(node) if isinstance(node, float) else node
