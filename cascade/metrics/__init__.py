"""Ranking metrics over graded judgements: of one list, of many orders at once, and expected over ties."""

from __future__ import annotations

from cascade.metrics.gain import Gain, gains_of
from cascade.metrics.lists import hit, ndcg, recall, reciprocal_rank
from cascade.metrics.rows import discounts, hit_rows, ideal_dcg, ndcg_rows, recall_rows, reciprocal_rank_rows
from cascade.metrics.silver import silver_gains
from cascade.metrics.ties import hit_over_ties, ndcg_over_ties, recall_over_ties, reciprocal_rank_over_ties

__all__ = [
    "Gain",
    "discounts",
    "gains_of",
    "hit",
    "hit_over_ties",
    "hit_rows",
    "ideal_dcg",
    "ndcg",
    "ndcg_over_ties",
    "ndcg_rows",
    "recall",
    "recall_over_ties",
    "recall_rows",
    "reciprocal_rank",
    "reciprocal_rank_over_ties",
    "reciprocal_rank_rows",
    "silver_gains",
]
