"""A candidate release beside the answers: what it would have answered, and by how much that is worse."""

from __future__ import annotations

from cascade.rollout.shadow.aside_stage import AsideStages
from cascade.rollout.shadow.beside import Shadowing
from cascade.rollout.shadow.gold import GoldQueries, GoldQuery, parse_gold
from cascade.rollout.shadow.gold_run import GoldRun
from cascade.rollout.shadow.outcome import ShadowOutcome
from cascade.rollout.shadow.runner import ShadowRunner

__all__ = [
    "AsideStages",
    "GoldQueries",
    "GoldQuery",
    "GoldRun",
    "ShadowOutcome",
    "ShadowRunner",
    "Shadowing",
    "parse_gold",
]
