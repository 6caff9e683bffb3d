"""What `GET /status` tells. It holds no address and no credential."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cascade import __version__
from cascade.policy.levels import level_names
from cascade.server.active import ActiveRelease
from cascade.server.caching import cache_state
from cascade.server.guards import guard_status
from cascade.server.service import Service
from cascade.server.tuned import tuning_status
from cascade.stages.base import Congestion
from cascade.stages.build import specs_of
from cascade.types import Lane

__all__ = ["status"]


def status(service: Service) -> dict[str, Any]:
    """Return how the process stands, its stable release, and beside it the candidate."""
    traffic = service.traffic
    return {
        "version": __version__,
        "ready": service.ready,
        "draining": service.draining,
        "admission": {
            "held": service.held,
            "seats": {str(lane): service.admission.held(lane) for lane in Lane},
            "waiting": {str(lane): service.admission.waiting(lane) for lane in Lane},
        },
        "cache": None if service.cache is None else dict(service.cache.told()),
        "start": {
            "passed_over": [asdict(each) for each in service.choices.passed_over],
            "taken_back": service.choices.was_taken_back,
        },
        "rollout": {
            "state_fault": None if service.desk is None else service.desk.state_fault,
        },
        **_of(traffic.stable, service),
        "candidate": None if traffic.candidate is None else {"share": traffic.share, **_of(traffic.candidate, service)},
    }


def _of(release: ActiveRelease, service: Service) -> dict[str, Any]:
    """Return a release and what is known of each of its stages."""
    now, specs = service.clock(), specs_of(release.bundle.loaded.release)
    return {
        "release": release.name,
        "digest": release.digest,
        "policy_digest": release.policy_digest,
        "level": release.pipeline.level.name,
        "levels": list(level_names(release.bundle.loaded.release)),
        "measured": {
            "why_not": release.measured.fault,
            "levels": {name: asdict(quality) for name, quality in release.measured.levels.items()},
        },
        "evidence_faults": dict(release.evidence_faults),
        "tuning": tuning_status(release.bundle, service.embedded_threads),
        "stepping": release.stepping.told(),
        "calibration": {
            "digest": release.calibration.digest,
            "state": release.calibration.state,
            "reasons": release.calibration.reasons,
            "uncompared": list(release.calibration.uncompared),
        },
        "stages": {
            str(name): {
                "declared": asdict(stage.fingerprint),
                "observed": asdict(stage.observed) if stage.observed is not None else None,
                "unusable": stage.unusable,
                "guards": guard_status(stage),
                "cache": cache_state(release.ladder[0].every_stage[name], specs[name]),
                "load": _load(stage.congestion, now),
                "probe": asdict(release.probes[name]) if name in release.probes else None,
            }
            for name, stage in release.stages.items()
        },
    }


def _load(told: Congestion | None, now: float) -> dict[str, Any] | None:
    """Return what a server told of its load, and whether that is too old to count."""
    if told is None:
        return None
    return {
        "queue_ms": told.queue_ms,
        "waiting": told.waiting,
        "running": told.running,
        "age_s": max(0.0, round(now - told.at, 3)),
        "stale": told.is_stale(now),
        "silent": told.is_silent(now),
    }
