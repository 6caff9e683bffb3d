"""Replay one partition of whole queries; parts put side by side are what the whole would have given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration
from cascade.policy.escalation import orders_by_fit
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.part import Part
from cascade.replay.policy import Played, Policy, play
from cascade.replay.queries import SLICES, Replayed, ReplayedQuery, query_digest, replayed_part
from cascade.replay.question import Question
from cascade.replay.score_table import ScoreTable
from cascade.replay.sections import decided, economics, joined, levels, ties
from cascade.replay.side_by_side import side_by_side
from cascade.replay.sweep import Sweep

__all__ = ["Part", "Replaying", "Returned", "replay_part", "replay_partition", "side_by_side"]


@dataclass(frozen=True, slots=True)
class Replaying:
    """What every partition is replayed for.

    ``most`` is the largest number of candidates within depth over the queries of all partitions: what
    static policies have settings for. ``silver`` tells that no table of them is judged. ``levels`` are the
    policies of a release's load levels, ``policy`` the first of them; a level without one asks no stage.
    """

    question: Question
    most: int
    calibration: Calibration | None = None
    policy: Policy | None = None
    silver: bool = False
    levels: Mapping[str, Policy | None] = field(default_factory=dict)

    @property
    def along(self) -> str:
        """Return along which policy's order the oracle stops."""
        return "small" if self.calibration is None else "static-fused"


@dataclass(frozen=True, slots=True)
class Returned:
    """What a partition of ``queries`` queries gives, None where none can be replayed, as ``dropped`` of them cannot."""

    part: Part | None
    queries: int
    dropped: int


def replay_partition(replaying: Replaying, named: tuple[str, ScoreTable]) -> Returned:
    """Replay a partition of whole queries of the table of this name. Pure, so that it may run in any process.

    Raises ConfigError for what cannot be replayed.
    """
    name, table = named
    question = replaying.question
    found = replayed_part(table, question.roles, question.k, question.gain, silver=replaying.silver)
    return Returned(replay_part(name, found, replaying), len(table.query_ids), found.dropped)


def replay_part(name: str, found: Replayed, replaying: Replaying) -> Part | None:
    """Replay the queries of a partition of the table ``name``, None where none of them can be.

    Pure in its arguments, so that it may run in any process. Raises ConfigError for what cannot be replayed.
    """
    queries, question = found.queries, replaying.question
    if not queries:
        return None
    policy, calibration = replaying.policy, replaying.calibration
    played = None if policy is None else play(queries, policy, question.k, question.metric)
    ranks = [baselines.small_ranks(queries)]
    ranks += [] if calibration is None else [baselines.fused_ranks(queries, calibration, question.k)]
    sweeps = _sweeps(queries, replaying, played, ranks)
    static = next(sweep for sweep in sweeps if sweep.name == "static")
    return Part(
        ids=tuple(query.id for query in queries),
        tables=(name,) * len(queries),
        slices={each: tuple(query.slices.get(each, "") for query in queries) for each in SLICES},
        sweeps={sweep.name: sweep.compact() for sweep in sweeps},
        columns={
            **_facts(queries, calibration),
            **ties.columns(queries, question.k),
            **decided.columns(played),
            **levels.columns(queries, replaying.levels, question, played),
            **economics.columns(queries),
            **joined.columns(
                queries,
                question,
                replaying.most,
                static=static,
                ranks=ranks,
                calibration=calibration,
                policy=policy,
                played=played,
            ),
        },
        own=None if played is None else played.own,
        never_told=frozenset(() if played is None else played.never_told),
    )


def _facts(queries: Sequence[ReplayedQuery], calibration: Calibration | None) -> dict[str, NDArray[Any]]:
    facts: dict[str, NDArray[Any]] = {
        "fact.without_relevant": np.array([query.judgement.ideal <= 0.0 for query in queries]),
        "fact.without_small": np.array([_unscored(query, query.small) for query in queries]),
        "fact.without_large": np.array([_unscored(query, query.large) for query in queries]),
    }
    if calibration is not None:
        trained = set(calibration.artefact.trained_on.query_ids_sha256)
        facts["fact.seen"] = np.array([query_digest(query.id) in trained for query in queries])
        facts["fact.misfit"] = np.array(
            [calibration.misfit(*baselines.within_depth(query)) is not None for query in queries]
        )
    return facts


def _unscored(query: ReplayedQuery, scores: FloatArray) -> int:
    """Return how many candidates within depth have no score."""
    return query.pairs - int(np.isfinite(scores[: query.pairs]).sum())


def _sweeps(
    queries: Sequence[ReplayedQuery], replaying: Replaying, played: Played | None, ranks: Sequence[baselines.Ranks]
) -> list[Sweep]:
    question, calibration, policy, most = replaying.question, replaying.calibration, replaying.policy, replaying.most
    k, metric = question.k, question.metric
    by_small, *by_value = ranks
    fused = [baselines.static(queries, k, metric, each, "static-fused", most=most) for each in by_value]
    if calibration is not None and policy is not None and orders_by_fit(policy.escalation):
        blocks: list[FloatArray] = baselines.final_blocks(queries, calibration)
        fused.append(baselines.static(queries, k, metric, by_small, "static-final", blocks, most))
    return [
        baselines.first_stage(queries, k, metric),
        baselines.small(queries, k, metric),
        baselines.large(queries, k, metric),
        baselines.static(queries, k, metric, by_small, most=most),
        *fused,
        baselines.random(queries, k, metric),
        baselines.oracle(queries, k, metric, ranks[-1]),
        *(() if played is None else (played.sweep,)),
    ]
