"""What a column's scorer was, as far as its table knows, and which scorers nothing can be fitted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from cascade.calibration.artefact import ScorerIdentity
from cascade.errors import ConfigError
from cascade.replay.table import ScoreTable
from cascade.types import ScoreSpace

__all__ = ["guessed_spaces", "refuse_ranks", "scorer_identity", "weights_sha256_of"]


def scorer_identity(table: ScoreTable, name: str, space: ScoreSpace | None) -> ScorerIdentity:
    """Return what a column's scorer was, as far as the table knows; a space that nobody declared is told from scores."""
    fingerprint = table.conditions.get("scorers", {}).get(name, {}).get("fingerprint")
    if space is None and fingerprint is not None:
        space = ScoreSpace(fingerprint["score_space"])
    if space is None:
        scores = table.column(name)
        scores = scores[np.isfinite(scores)]
        bounded = bool(len(scores)) and bool(scores.min() >= 0.0) and bool(scores.max() <= 1.0)
        space = ScoreSpace.PROBABILITY if bounded else ScoreSpace.LOGIT
    return ScorerIdentity(
        name=name, space=space, fingerprint=fingerprint, weights_sha256=weights_sha256_of(table, name)
    )


def weights_sha256_of(table: ScoreTable, name: str) -> str | None:
    """Return the digest of the files that a column's scorer was loaded from, None where the table does not know it."""
    observed = table.conditions.get("observed", {}).get(name) or {}
    told: str | None = observed.get("weights_sha256")
    return told


def refuse_ranks(small: ScorerIdentity, large: ScorerIdentity) -> None:
    """Raise ConfigError where a scorer orders lists: what it would write of fewer documents, no column tells."""
    if ScoreSpace.RANK in (small.space, large.space):
        raise ConfigError("a stage that orders lists gives ranks, no scores: there is nothing to calibrate or certify")


def guessed_spaces(scorers: Iterable[tuple[ScorerIdentity, ScoreSpace | None]]) -> Iterator[str]:
    """Say which spaces, of scorers and what was asked for each, nobody declared: cosines above 0 look like probabilities."""
    for identity, asked in scorers:
        if asked is None and identity.fingerprint is None:
            yield f"score space of {identity.name}: nobody declared it; told from the scores it is {identity.space}"
