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
from cascade.replay.policy import Played, Policy, Progress, play
from cascade.replay.queries import SLICES, Replayed, ReplayedQuery, query_digest
from cascade.replay.question import Question
from cascade.replay.sections import decided, ties
from cascade.replay.sweep import Sweep

__all__ = ["Part", "Replaying", "replay_part", "side_by_side"]


@dataclass(frozen=True, slots=True)
class Replaying:
    """What every partition is replayed for.

    ``most`` is the largest number of candidates within depth over the queries of all partitions: what
    static policies have settings for.
    """

    question: Question
    most: int
    calibration: Calibration | None = None
    policy: Policy | None = None

    @property
    def along(self) -> str:
        """Return along which policy's order the oracle stops."""
        return "small" if self.calibration is None else "static-fused"


@dataclass(frozen=True, slots=True)
class Part:
    """What some queries give: ids, values of :data:`SLICES`, sweeps (S, Q), and columns (Q, ...) of further sections.

    ``own`` is the policy's own setting, None without a policy. ``never_told`` names the signals that its rules
    read and no query tells.
    """

    ids: tuple[str, ...]
    tables: tuple[str, ...]
    slices: Mapping[str, tuple[str, ...]]
    sweeps: Mapping[str, Sweep]
    columns: Mapping[str, NDArray[Any]]
    own: int | None = None
    never_told: frozenset[str] = field(default_factory=frozenset)


def replay_part(name: str, found: Replayed, replaying: Replaying, progress: Progress = iter) -> Part | None:
    """Replay the queries of a partition of the table ``name``, None where none of them can be.

    Pure in its arguments, so that it may run in any process. Raises ConfigError for what cannot be replayed.
    """
    queries, question = found.queries, replaying.question
    if not queries:
        return None
    policy, calibration = replaying.policy, replaying.calibration
    played = None if policy is None else play(queries, policy, question.k, question.metric, progress)
    sweeps = _sweeps(queries, replaying, played)
    return Part(
        ids=tuple(query.id for query in queries),
        tables=(name,) * len(queries),
        slices={each: tuple(query.slices.get(each, "") for query in queries) for each in SLICES},
        sweeps={sweep.name: sweep for sweep in sweeps},
        columns={
            **_facts(queries, calibration),
            **ties.columns(queries, question.k),
            **decided.columns(played),
        },
        own=None if played is None else played.own,
        never_told=frozenset(() if played is None else played.never_told),
    )


def side_by_side(parts: Sequence[Part]) -> Part:
    """Return the queries of all parts, in their order, as one part."""
    first = parts[0]
    return Part(
        ids=tuple(name for part in parts for name in part.ids),
        tables=tuple(name for part in parts for name in part.tables),
        slices={each: tuple(value for part in parts for value in part.slices[each]) for each in first.slices},
        sweeps={name: Sweep.side_by_side([part.sweeps[name] for part in parts]) for name in first.sweeps},
        columns={name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns},
        own=first.own,
        never_told=frozenset.intersection(*(part.never_told for part in parts)),
    )


def _facts(queries: Sequence[ReplayedQuery], calibration: Calibration | None) -> dict[str, NDArray[Any]]:
    facts: dict[str, NDArray[Any]] = {
        "fact.without_relevant": np.array([query.judgement.ideal <= 0.0 for query in queries])
    }
    if calibration is not None:
        trained = set(calibration.artefact.trained_on.query_ids_sha256)
        facts["fact.seen"] = np.array([query_digest(query.id) in trained for query in queries])
        facts["fact.misfit"] = np.array(
            [calibration.misfit(*baselines.within_depth(query)) is not None for query in queries]
        )
    return facts


def _sweeps(queries: Sequence[ReplayedQuery], replaying: Replaying, played: Played | None) -> list[Sweep]:
    question, calibration, policy, most = replaying.question, replaying.calibration, replaying.policy, replaying.most
    k, metric = question.k, question.metric
    by_small = baselines.small_ranks(queries)
    by_value = None if calibration is None else baselines.fused_ranks(queries, calibration, k)
    fused = [] if by_value is None else [baselines.static(queries, k, metric, by_value, "static-fused", most=most)]
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
        baselines.oracle(queries, k, metric, by_small if by_value is None else by_value),
        *(() if played is None else (played.sweep,)),
    ]
