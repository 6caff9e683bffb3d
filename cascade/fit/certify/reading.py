"""Read tables for certifying: one table, its queries by part, and what is left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.calibration.certificate import Data, Splits
from cascade.errors import ConfigError
from cascade.fit.certify.asked import FITTING, NOT_FITTING, Asked
from cascade.fit.certify.splits import Parted, Shares, part_of, parted
from cascade.fit.scorers import weights_sha256_of
from cascade.replay.columns import FloatArray
from cascade.replay.joined import joined
from cascade.replay.queries import ReplayedQuery, is_judged, replayed
from cascade.replay.same_text import TEXT_COLUMN
from cascade.replay.table import ScoreTable, data_sha256
from cascade.stages.fingerprint import completed
from cascade.types import StageName

__all__ = ["Read", "pairs_of", "read_for"]


@dataclass(frozen=True, slots=True)
class Read:
    """The tables as one. ``choose`` are the queries that choose the path beside those that a calibration is fitted on.

    ``known`` are all that can be replayed, by id, ``most`` the greatest number of candidates within depth, and
    ``dropped`` how many queries a reranker scored no candidate of.
    """

    table: ScoreTable
    parts: Parted
    shares: Shares
    known: Mapping[str, ReplayedQuery]
    choose: tuple[ReplayedQuery, ...]
    certify: tuple[ReplayedQuery, ...]
    most: int
    dropped: int

    def splits(self, seed: int) -> Splits:
        """Return what a certificate tells of the parts."""
        parts = (self.parts.fit, self.parts.choose, self.parts.certify)
        fit, choose, certify = (part_of([name for name in part.query_ids if name in self.known]) for part in parts)
        return Splits(
            seed=seed,
            by=self.parts.by,
            shares=(self.shares.fit, self.shares.choose, self.shares.certify),
            fit=fit,
            choose=choose,
            certify=certify,
            trained_left_out=self.parts.trained,
            repeated_left_out=self.parts.repeated,
            unscored_left_out=self.dropped,
            without_relevant=sum(query.judgement.ideal <= 0.0 for query in self.certify),
        )

    def data(self, asked: Asked) -> Data:
        """Return what a certificate tells of the data: the digest covers every column that was read."""
        return Data(
            sha256=data_sha256(self.table, [*asked.roles.first_stage, asked.roles.small, *_judging(self.table, asked)]),
            queries=len(self.table.query_ids),
            pairs=len(self.table.doc_ids),
            first_stage=self.table.first_stage_name(asked.roles.first_stage),
            where=asked.where,
        )

    def contract_sha256(self, asked: Asked) -> str:
        """Return the digest of what is promised of which data, whatever policy it is promised of."""
        promised = {**asked.contract().model_dump(), "epsilon": None, "delta": None}
        return _sha256([promised, data_sha256(self.table, _judging(self.table, asked))])

    def identity_sha256(self, asked: Asked, *supplied: object) -> str:
        """Return the digest of all that decides the outcome."""
        keys = self.table.attributes.get(TEXT_COLUMN)
        return _sha256([asked.told(), self.data(asked).model_dump(), keys, *supplied])


def read_for(tables: Sequence[ScoreTable], asked: Asked, calibration: Calibration | None, *, fits: bool) -> Read:
    """Part the queries of ``tables``; ``fits`` tells that a calibration has to be fitted on some of them.

    Raises ConfigError for what cannot be certified on.
    """
    table = joined(tables)
    if asked.kind == "silver":
        table = replace(table, rel=None, grades=None)
    elif not is_judged(table):
        raise ConfigError("the tables have no judgements; --contract silver certifies against the large order alone")
    _check(table, asked, calibration)
    trained = frozenset(() if calibration is None else calibration.artefact.trained_on.query_ids_sha256)
    shares = asked.shares or (FITTING if fits else NOT_FITTING)
    parts = parted(table, shares, asked.seed, trained)
    if fits and not parts.fit.query_ids:
        raise ConfigError("--shares: a calibration has to be fitted, and no query is left to fit on")
    found = replayed([table], asked.roles, asked.k, asked.gain)
    known = {query.id: query for query in found.queries}
    choosing = parts.choose.query_ids if fits else (*parts.fit.query_ids, *parts.choose.query_ids)
    choose, certify = (
        tuple(known[name] for name in names if name in known) for names in (choosing, parts.certify.query_ids)
    )
    if not certify or not (choose or fits):
        raise ConfigError(
            f"{len(certify)} queries are left to certify and {len(choose)} to choose the path: both need some"
            f" ({parts.trained} trained the calibration, {parts.repeated} repeat a text)"
        )
    most = max(query.pairs for query in found.queries)
    return Read(table, parts, shares, known, choose, certify, most, found.dropped)


def pairs_of(queries: Sequence[ReplayedQuery]) -> FloatArray:
    """Return how many pairs always-large sends of each query (Q,)."""
    return np.array([query.pairs for query in queries], dtype=np.float64)


def _check(table: ScoreTable, asked: Asked, calibration: Calibration | None) -> None:
    """Refuse a calibration that was fitted on other scorers than the table's, or reads what is not named."""
    if calibration is None:
        return
    artefact = calibration.artefact
    if unread := sorted(set(artefact.channels) - set(asked.roles.first_stage)):
        raise ConfigError(f"the calibration reads channels that the first stage does not name: {', '.join(unread)}")
    for stage, fitted, column in (
        (StageName.SMALL, artefact.small, asked.roles.small),
        (StageName.LARGE, artefact.large, asked.roles.large),
    ):
        here = table.conditions.get("scorers", {}).get(column, {}).get("fingerprint")
        if fitted.name != column:
            raise ConfigError(f"the calibration was fitted for {stage} {fitted.name}, and {column} is to be certified")
        told = here is not None and fitted.fingerprint is not None
        if told and completed(here) != completed(fitted.fingerprint or {}):
            raise ConfigError(f"column {column}: scored by another {stage} stage than the calibration was fitted on")
        weights = (weights_sha256_of(table, column), fitted.weights_sha256)
        if None not in weights and len(set(weights)) > 1:
            raise ConfigError(f"column {column}: scored by other weights than the calibration was fitted on")


def _judging(table: ScoreTable, asked: Asked) -> list[str]:
    """Return the columns that losses are measured by."""
    first = ["rank_first"] if table.rank_first is not None else []
    judged = ["rel"] if table.rel is not None else []
    return [asked.roles.large, *first, *judged, *(["q_grades"] if table.grades is not None else [])]


def _sha256(told: object) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
