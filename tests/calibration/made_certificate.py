"""A certificate made for tests."""

from __future__ import annotations

from typing import Any

from cascade.calibration.artefact import ScorerIdentity
from cascade.calibration.certificate import (
    Attempts,
    Certificate,
    CertifiedPolicy,
    Contract,
    Data,
    PathPoint,
    SplitPart,
    Splits,
)
from cascade.types import ScoreSpace

__all__ = ["made_certificate"]


def made_certificate(
    policy_digest: str | None = None,
    small: dict[str, Any] | None = None,
    large: dict[str, Any] | None = None,
    **fields: Any,
) -> Certificate:
    """Return a certificate of a release; ``small`` and ``large`` are fingerprints, None where only names are known."""
    part = SplitPart(queries=300, sha256="1" * 64)
    made: dict[str, Any] = {
        "format": "cascade-certificate/1",
        "contract": Contract(kind="gold", sided="two", k=10, gain="linear", epsilon=0.01, delta=0.1),
        "n": 300,
        "mean": 0.001,
        "sigma": 0.05,
        "p": 0.04,
        "bound": 0.009,
        "method": "fixed sequence, betting: star",
        "large_share": 0.2,
        "policy": CertifiedPolicy(
            family="release",
            setting=0.002,
            escalation={"kind": "calibrated"},
            depth={"kind": "fixed", "depth": 50},
            policy_digest=policy_digest,
        ),
        "splits": Splits(
            seed=0,
            by="query_id",
            shares=(0.0, 0.3, 0.7),
            fit=part,
            choose=part,
            certify=part,
            trained_left_out=0,
            repeated_left_out=0,
            unscored_left_out=0,
            without_relevant=0,
        ),
        "data": Data(sha256=f"sha256:{'2' * 64}", queries=900, pairs=9000, first_stage="rank_first"),
        "small": ScorerIdentity(name="small", space=ScoreSpace.LOGIT, fingerprint=small),
        "large": ScorerIdentity(name="large", space=ScoreSpace.LOGIT, fingerprint=large),
        "channels": ("bm25",),
        "attempts": Attempts(number=1, delta=0.06, identity="3" * 64),
        "path": (
            PathPoint(family="release", setting=0.002, large_share=0.2, mean=0.001, sigma=0.05, p=0.04, accepted=True),
        ),
        "versions": {"cascade": "0"},
    }
    return Certificate(**made | fields)
