"""Tell beforehand what a release will have to show before it gets traffic, and how soon harm would be met."""

from __future__ import annotations

import os
from typing import Any

from cascade.policy.release import Release
from cascade.rollout.guardrails import time_to_rollback
from cascade.rollout.judge import judge_of
from cascade.rollout.load import offline, release_from
from cascade.rollout.ports import Found
from cascade.rollout.source import open_source

__all__ = ["foreseen"]


def foreseen(stable: Release, found: Found, requests_per_s: float) -> dict[str, Any]:
    """Return a release's steps and limits, what its first step will wait for, and the time to rollback.

    It is held against the stable release of now. ``seconds`` are None where there is no traffic. It takes some tenths
    of a second, for a thread. Raises ConfigError for a bundle that cannot be read.
    """
    loaded = release_from(open_source(found.path), offline(os.environ))
    rules = loaded.release.rollout
    told = judge_of(stable, loaded.release, now=0.0).controller.told()
    rows = time_to_rollback(rules, requests_per_s or 1.0)
    return {
        "release": loaded.release.release,
        "digest": loaded.digest,
        "steps": list(rules.steps),
        "min_queries": rules.min_queries,
        "min_seconds": rules.min_seconds,
        "alpha": rules.alpha,
        "shadow_share": rules.shadow.share,
        "limits": rules.guardrails.model_dump(),
        "waits_for": told["waits_for"],
        "requests_per_s": round(requests_per_s, 3),
        "rollback_within": rows if requests_per_s else [row | {"seconds": None} for row in rows],
    }
