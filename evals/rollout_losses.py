"""Write evals/rollout_losses.md: the ranking guardrail on losses of real releases, by `python -m evals.rollout_losses`.

Two releases decide the same real queries by the functions that serve; what a shadow would see of each pair is drawn from that,
and the guardrail wagers on it. No model is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cascade.cli.eval_policy import load_calibration, policy_of_release
from cascade.metrics import Gain
from cascade.policy.escalation_rules import CalibratedEscalation, NoEscalation, StaticEscalation
from cascade.policy.release import RolloutRules
from cascade.replay.policy import Policy, play
from cascade.replay.queries import ReplayedQuery, Roles, replayed_part
from cascade.replay.source import source_on_disk
from cascade.replay.sweep import Metric
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.ranking_evidence import RankingEvidence
from cascade.rollout.guardrails.spending import harm_alpha
from cascade.rollout.guardrails.time_to_rollback import time_to_rollback
from evals.first_stage import shared_data

__all__ = ["PAIRS", "Watched", "losses", "page", "watch"]

_K: Final = 10
_RULES: Final = RolloutRules()
_LIMITS: Final = (0.01, 0.03)
_RUNS: Final = 50
_PART: Final = 250
_MOST_PAIRS: Final = 20_000
_ROLES: Final = Roles(("bm25", "me5_small", "bge_m3_dense"), "ce_ja_xsmall", "ce_bge_v2_m3")
_ROOT: Final = Path(__file__).parents[1]
_HEAD: Final = """# The ranking guardrail on real losses

Written by `python -m evals.rollout_losses`. The releases decide {queries} queries of JQaRA that nothing was fitted on (QA20QBIK, 100 candidates each,
published scores: `{small}` small, `{large}` large), by the functions that decide when serving. A loss is what a shadow would see of a
query: nDCG@{k} of the stable order less that of the candidate's, gains by the large stage's own ranks. {runs} runs a row draw queries with equal chances,
again and again, until the guardrail says `pass` or `fail`, {most:,} pairs at most. Alphas are the defaults (harm {harm:.5f}, pass {alpha:g}).

*japanese-qa* is the packaged release; where a price is named, it is that release at another price a pair. Its calibration was fitted on the other source of JQaRA.
*Loss* is the mean, with the standard deviation of a query; *alike*, the share of queries that lose and gain nothing. Pairs are the median and the 95th percentile of the runs
with that verdict. At 100 requests a second, of which the default scores 5% beside, 1,000 pairs are 200 s.

| stable | candidate | loss | sd | alike | limit | pass | fail | open | pairs to the verdict: median | p95 |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""
_TAIL: Final = """
What `cascade rollout start` tells beforehand of a loss of {harm:g} at a limit of {limit:g} is {queries:,} pairs, with a probability of .99, by made-up losses with a standard deviation of .2.
A mean that is within the limit and near it stays open for long, and one that is beyond it and near it too: that is what wagering without a fixed number of
pairs costs. Queries here come in no order and each as often as another; real traffic repeats itself.
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """What the guardrail said in each of many runs, and after how many pairs."""

    verdicts: Sequence[GuardrailVerdict]
    pairs: Sequence[int]


def main() -> None:
    """Play all, and write the page."""
    source = source_on_disk(shared_data() / "jqara.parquet", _ROLES, (("source", "QA20QBIK"),))
    parts = (replayed_part(table, _ROLES, _K, Gain.LINEAR, silver=True) for table in source.partitions(_PART))
    queries = [query for part in parts for query in part.queries]
    release = policy_of_release(
        _ROOT / "policies" / "japanese-qa.yaml", load_calibration(_ROOT / "calibration" / "japanese-qa.json")
    )
    Path(__file__).with_suffix(".md").write_text("\n".join(page(queries, release)) + "\n", encoding="utf-8")


def page(queries: Sequence[ReplayedQuery], release: Policy, runs: int = _RUNS) -> Iterator[str]:
    """Yield the lines of the page."""
    yield _HEAD.format(
        queries=len(queries),
        small=_ROLES.small,
        large=_ROLES.large,
        k=_K,
        runs=runs,
        most=_MOST_PAIRS,
        harm=harm_alpha(_RULES),
        alpha=_RULES.alpha,
    )
    for stable, candidate in PAIRS:
        lost = losses(queries, _changed(release, stable), _changed(release, candidate))
        for limit in _LIMITS:
            seen = [watch(lost, limit, seed) for seed in range(runs)]
            yield _row(_NAMES[stable], _NAMES[candidate], lost, limit, Watched(*zip(*seen, strict=True)))
    told = next(row for row in time_to_rollback(_RULES, 100.0) if row["guardrail"] == GuardrailName.RANKING_LOSS)
    yield _TAIL.format(**told, limit=_RULES.guardrails.ranking_loss or 0.0).rstrip()


def losses(queries: Sequence[ReplayedQuery], stable: Policy, candidate: Policy) -> npt.NDArray[np.float64]:
    """Return for each query (Q,) nDCG of the stable order less that of the candidate's, by the queries' own gains."""
    metric = Metric.NDCG
    sides = [play(queries, policy, _K, metric, prices=()) for policy in (stable, candidate)]
    of_stable, of_candidate = (side.sweep.quality[side.own] for side in sides)
    return np.asarray(of_stable - of_candidate, dtype=np.float64)


def watch(lost: npt.NDArray[np.float64], limit: float, seed: int) -> tuple[GuardrailVerdict, int]:
    """Draw losses until the guardrail tells; return what it says, and after how many."""
    rng = np.random.default_rng([seed, 20261130])
    evidence = RankingEvidence(GuardrailName.RANKING_LOSS, limit, harm_alpha(_RULES), _RULES.alpha, needed=True)
    for count, loss in enumerate(rng.choice(lost, _MOST_PAIRS).tolist(), 1):
        evidence.add(loss)
        if (verdict := evidence.verdict) is not GuardrailVerdict.INCONCLUSIVE:
            return verdict, count
    return GuardrailVerdict.INCONCLUSIVE, _MOST_PAIRS


def _changed(release: Policy, change: str) -> Policy:
    """Return the release under another rule: a price, a number of candidates, or none; "" changes nothing."""
    rule = release.escalation
    match change.split():
        case ["price", price] if isinstance(rule, CalibratedEscalation):
            return replace(release, escalation=rule.model_copy(update={"price_per_pair": float(price)}))
        case ["top", count]:
            return replace(release, escalation=StaticEscalation(kind="static", top_m=int(count)))
        case ["none"]:
            return replace(release, escalation=NoEscalation())
        case _:
            return release


PAIRS: Final = (
    ("", ""),
    ("", "price 0.002"),
    ("", "price 0.012"),
    ("", "price 0.02"),
    ("", "price 0.04"),
    ("", "none"),
    ("top 100", "price 0.002"),
    ("top 100", ""),
    ("top 100", "top 20"),
)
_NAMES: Final[Mapping[str, str]] = {
    "": "japanese-qa",
    "price 0.002": "price .002",
    "price 0.012": "price .012",
    "price 0.02": "price .02",
    "price 0.04": "price .04",
    "none": "escalation none",
    "top 100": "always large",
    "top 20": "static, top 20",
}


def _row(stable: str, candidate: str, lost: npt.NDArray[np.float64], limit: float, seen: Watched) -> str:
    counts: Counter[Any] = Counter(seen.verdicts)
    told = [
        n for verdict, n in zip(seen.verdicts, seen.pairs, strict=True) if verdict is not GuardrailVerdict.INCONCLUSIVE
    ]
    spread = f"{median(told):,.0f} | {quantiles(told, n=20, method='inclusive')[-1]:,.0f}" if len(told) > 1 else "- | -"
    verdicts = " | ".join(
        str(counts[each]) for each in (GuardrailVerdict.PASS, GuardrailVerdict.FAIL, GuardrailVerdict.INCONCLUSIVE)
    )
    alike = float(np.mean(lost == 0.0))
    return f"| {stable} | {candidate} | {lost.mean():+.4f} | {lost.std():.3f} | {alike:.0%} | {limit:g} | {verdicts} | {spread} |"


if __name__ == "__main__":
    main()
