"""Certify a policy on score tables, from beginning to end: ``cascade certify`` without its command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cascade.calibration.artefact import CalibrationArtefact, ScorerIdentity, artefact_bytes, artefact_digest
from cascade.calibration.calibrated import Calibration
from cascade.calibration.certificate import Attempts, Certificate, CertifiedPolicy, PathPoint
from cascade.fit.calibrate import Asked as ToFit
from cascade.fit.calibrate import Fitted, fit_calibration
from cascade.fit.certify.asked import Asked
from cascade.fit.certify.attempts import attempt
from cascade.fit.certify.holes import judged_heads
from cascade.fit.certify.levels import Budget, budget_of, check_levels
from cascade.fit.certify.path import choose_path
from cascade.fit.certify.policies import NEED_CALIBRATION, Policies
from cascade.fit.certify.reading import Read, pairs_of, read_for
from cascade.fit.certify.refusal import Refusal, refused
from cascade.fit.certify.replays import Replay
from cascade.fit.certify.sequence import Tested, fixed_sequence, informed
from cascade.fit.certify.splits import betting_order
from cascade.fit.scorers import refuse_ranks, scorer_identity
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.policy import Policy
from cascade.replay.queries import ReplayedQuery
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable
from cascade.statistics.betting import Prior, betting_upper_bound

__all__ = ["Outcome", "Supplied", "certify"]

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Supplied:
    """What certifying is given beside the tables.

    ``release`` is a release's policy, ``alone`` to be certified as it is, and ``levels`` those of its load levels.
    ``digest_of`` returns the digest of the release that holds a rule, None where no release is named.
    ``log`` is where attempts are counted.
    """

    log: Path
    versions: Mapping[str, str]
    calibration: Calibration | None = None
    release: Policy | None = None
    alone: bool = False
    levels: Mapping[str, Policy] = field(default_factory=dict)
    digest_of: Callable[[Mapping[str, Any]], str | None] = lambda rule: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A certificate, or why there is none; the calibration where one was fitted here; and what was tested.

    ``delta`` is what the tests might spend: less than was asked for, after attempts and what is served beside.
    """

    certificate: Certificate | None
    refusal: Refusal | None
    fitted: CalibrationArtefact | None
    path: tuple[PathPoint, ...]
    delta: float


def certify(
    tables: Sequence[ScoreTable], asked: Asked, given: Supplied, progress: Progress = lambda step: None
) -> Outcome:
    """Choose a path and test it on queries that had no part in it. Raises ConfigError for what cannot be tried."""
    with threadpool_limits(limits=1, user_api="blas"):
        return _certified(tables, asked, given, progress)


def _certified(tables: Sequence[ScoreTable], asked: Asked, given: Supplied, progress: Progress) -> Outcome:
    check_levels(asked, given.levels)
    fits = given.calibration is None and bool(NEED_CALIBRATION & set(asked.families))
    read = read_for(tables, asked, given.calibration, fits=fits)
    refuse_ranks(*_scorers(read, asked))
    fitted = _fit(read, asked, progress) if fits else None
    calibration = given.calibration if fitted is None else _calibration(fitted)
    policies = Policies(asked.families, asked.k, read.most, calibration, given.release, given.alone)
    progress("choosing the path")
    shares, chosen = _choosing(policies, read, asked, fitted)
    path = [0] if given.alone else choose_path(chosen, shares, asked.epsilon)
    progress("certifying")
    replay = policies.replay(read.certify)
    large = _large(read.certify, asked.k)
    losses = asked.losses(large, replay.quality)[:, betting_order([query.id for query in read.certify], asked.seed)]
    tried = attempt(given.log, read.contract_sha256(asked), _identity(read, asked, given), asked.delta)
    budget = budget_of(asked, tried, read.certify, large, given.levels)
    tested = Tested((), None)
    if budget.epsilon > 0.0:
        prior = informed(chosen[path])
        tested = fixed_sequence(losses, path, budget.epsilon, budget.delta, asked.bets, prior)
    points = _points(replay, losses, path, tested, read)
    artefact = None if fitted is None else fitted.artefact
    if tested.accepted is None:
        every = np.concatenate([chosen, losses], axis=1)
        told = refused(asked, budget, tried, every, path, len(read.certify), tested.p)
        return Outcome(None, told, artefact, points, budget.delta)
    at = tested.accepted
    policy = policies.of(replay.family[at], replay.rules[at])
    certificate = _certificate(
        read, asked, given, budget, tried, points, replay, at, losses[at], policy, calibration, informed(chosen[at])
    )
    return Outcome(certificate, None, artefact, points, budget.delta)


def _scorers(read: Read, asked: Asked) -> tuple[ScorerIdentity, ScorerIdentity]:
    """Return what the small and the large scorer were."""
    return (
        scorer_identity(read.table, asked.roles.small, asked.small_space),
        scorer_identity(read.table, asked.roles.large, asked.large_space),
    )


def _fit(read: Read, asked: Asked, progress: Progress) -> Fitted:
    to_fit = ToFit(asked.roles, asked.k, asked.small_space, asked.large_space, {}, asked.seed)
    return fit_calibration([read.parts.fit], to_fit, progress)


def _calibration(fitted: Fitted) -> Calibration:
    return Calibration(fitted.artefact, artefact_digest(artefact_bytes(fitted.artefact)))


def _choosing(policies: Policies, read: Read, asked: Asked, fitted: Fitted | None) -> tuple[FloatArray, FloatArray]:
    """Return by policy the share of always-large's pairs (S,) and the losses (S, Q) on the queries that choose."""
    parts: list[tuple[tuple[ReplayedQuery, ...], Replay]] = []
    if fitted is not None:
        # By id, since these were read with the gain that was asked for.
        mine = tuple(read.known[query.id] for query in fitted.queries)
        parts.append((mine, policies.replay_fitted(mine, fitted)))
    if read.choose:
        parts.append((read.choose, policies.replay(read.choose)))
    queries, replay = parts[0]
    for more, other in parts[1:]:
        queries, replay = (*queries, *more), replay.beside(other)
    losses = asked.losses(_large(queries, asked.k), replay.quality)
    return replay.pairs.mean(axis=1) / pairs_of(queries).mean(), losses


def _large(queries: Sequence[ReplayedQuery], k: int) -> FloatArray:
    return np.asarray(baselines.large(queries, k, Metric.NDCG).quality[0])


def _identity(read: Read, asked: Asked, given: Supplied) -> str:
    release = None if given.release is None else given.release.described
    calibration = None if given.calibration is None else given.calibration.sha256
    return read.identity_sha256(asked, calibration, release, given.alone, given.versions)


def _points(
    replay: Replay, losses: FloatArray, path: Sequence[int], tested: Tested, read: Read
) -> tuple[PathPoint, ...]:
    whole = pairs_of(read.certify).mean()
    return tuple(
        PathPoint(
            family=replay.family[at],
            setting=replay.settings[at],
            large_share=float(replay.pairs[at].mean() / whole),
            mean=float(losses[at].mean()),
            sigma=float(np.std(losses[at])),
            p=p,
            accepted=number < tested.count,
        )
        for number, (at, p) in enumerate(zip(path, tested.p, strict=False))
    )


def _certificate(
    read: Read,
    asked: Asked,
    given: Supplied,
    budget: Budget,
    tried: Attempts,
    points: tuple[PathPoint, ...],
    replay: Replay,
    at: int,
    losses: FloatArray,
    policy: Policy,
    calibration: Calibration | None,
    prior: Prior,
) -> Certificate:
    last = [point for point in points if point.accepted][-1]
    bound = betting_upper_bound(losses, budget.epsilon, budget.delta, asked.bets, prior)
    rule = policy.escalation.model_dump(mode="json", exclude_none=True)
    small, large = _scorers(read, asked)
    return Certificate(
        format="cascade-certificate/1",
        contract=asked.contract(),
        n=losses.size,
        mean=last.mean,
        sigma=last.sigma,
        p=last.p,
        bound=bound,
        method=f"fixed sequence, betting: {asked.bets}",
        large_share=last.large_share,
        policy=CertifiedPolicy(
            family=last.family,
            setting=last.setting,
            escalation=rule,
            depth=policy.depth.model_dump(mode="json"),
            policy_digest=given.digest_of(rule),
            calibration=None if policy.calibration is None else rule.get("calibration"),
        ),
        splits=read.splits(asked.seed),
        data=read.data(asked),
        small=small,
        large=large,
        channels=asked.roles.first_stage,
        attempts=tried,
        path=points,
        as_served=budget.told(bound),
        judged=judged_heads(read.table, read.certify, asked, policy, budget, prior),
        versions=dict(given.versions),
        notes=_notes(calibration),
    )


def _notes(calibration: Calibration | None) -> tuple[str, ...]:
    """Say where escalating at all is not shown to help: what is certified is closeness to the large stage."""
    if calibration is None or calibration.artefact.benefit.status == "shown":
        return ()
    return (f"that the large stage helps is {calibration.artefact.benefit.status}, as the calibration found",)
