"""A desk that says what a test lets it say, and rollouts as the real one tells them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from cascade.errors import CascadeError
from cascade.policy.release import RolloutRules
from cascade.rollout.controller import RolloutController
from cascade.rollout.guardrails import Observed, time_to_rollback
from cascade.types import Arm

__all__ = [
    "CANDIDATE",
    "STABLE",
    "FakeDesk",
    "entry",
    "foreseen",
    "guardrails",
    "idle",
    "put_off",
    "running",
    "turned_down",
]

STABLE: Final = {
    "release": "r-2026-10",
    "digest": "sha256:" + "a" * 64,
    "policy_digest": "sha256:" + "b" * 64,
    "activated_at": "2026-11-30T08:00:00.000+00:00",
}
CANDIDATE: Final = {
    "release": "r-2026-11",
    "digest": "sha256:" + "c" * 64,
    "asked_at": "2026-11-30T09:00:00.000+00:00",
    "downloaded_at": "2026-11-30T09:00:01.000+00:00",
    "activated_at": "2026-11-30T09:00:03.000+00:00",
    "at_once": False,
    "lenient": False,
}
_RULES: Final = RolloutRules()


def idle(**changes: Any) -> dict[str, Any]:
    """Return the status of a desk that has nothing to do."""
    return {
        "state": "idle",
        "activation_step": None,
        "stable": dict(STABLE),
        "candidate": None,
        "desired": None,
        "refused": None,
        "share": 0.0,
        "step": None,
        "steps": [],
        "promoted_without_evidence": [],
        "guardrails": [],
        "waits_for": [],
        "rollback_within": [],
        "state_fault": None,
    } | changes


def running(step: int = 1, late: bool = False, **changes: Any) -> dict[str, Any]:
    """Return the status of a rollout under way, with the numbers of a real controller."""
    controller = _controller(step, late)
    told: dict[str, Any] = {
        "state": "running",
        "candidate": dict(CANDIDATE),
        "desired": {
            "release": CANDIDATE["release"],
            "digest": CANDIDATE["digest"],
            "source": "releases/current.tar",
            "asked_at": "2026-11-30T09:20:00.000+00:00",
            "fault": None,
            "pending": False,
            "tried_again_at": None,
        },
        "share": controller.share,
        "step": controller.step,
        "steps": list(_RULES.steps),
        "rollback_within": time_to_rollback(_RULES, 40.0),
    }
    return idle(**told | controller.told() | changes)


def put_off() -> dict[str, Any]:
    """Return the status after a desired release was refused whose server did not answer."""
    desired = running()["desired"] | {"pending": True, "tried_again_at": "2026-11-30T09:25:30.000+00:00"}
    return turned_down("refused", step="probe", why=["small: no answer"]) | {"desired": desired}


def turned_down(state: str = "rolled_back", **changes: Any) -> dict[str, Any]:
    """Return the status after a candidate was taken back for being late."""
    refused = {
        "digest": CANDIDATE["digest"],
        "release": CANDIDATE["release"],
        "step": state,
        "why": ["late: it is shown to be beyond its limit"],
        "at": "2026-11-30T09:25:00.000+00:00",
    }
    return idle(state=state, refused=refused | changes)


def entry(what: str = "rolled_back", **changes: Any) -> dict[str, Any]:
    """Return an entry of the history: a candidate that was late, with the evidence."""
    return {
        "at": "2026-11-30T09:25:00.000+00:00",
        "what": what,
        "release": CANDIDATE["release"],
        "digest": CANDIDATE["digest"],
        "share": 0.0,
        "step": 1,
        "at_once": False,
        "lenient": False,
        "why": ["late: it is shown to be beyond its limit"],
        "evidence": {"guardrails": guardrails(late=True)},
    } | changes


def guardrails(step: int = 1, late: bool = False) -> list[dict[str, Any]]:
    """Return the guardrails of a rollout."""
    told: list[dict[str, Any]] = _controller(step, late).told()["guardrails"]
    return told


def foreseen(per_s: float = 40.0) -> dict[str, Any]:
    """Return what is told of a release beforehand."""
    controller = RolloutController(_RULES, **_SAME, started_at=0.0)
    rows = time_to_rollback(_RULES, per_s or 1.0)
    return {
        "release": CANDIDATE["release"],
        "digest": CANDIDATE["digest"],
        "steps": list(_RULES.steps),
        "min_queries": _RULES.min_queries,
        "min_seconds": _RULES.min_seconds,
        "alpha": _RULES.alpha,
        "shadow_share": _RULES.shadow.share,
        "limits": _RULES.guardrails.model_dump(),
        "waits_for": controller.told()["waits_for"],
        "requests_per_s": per_s,
        "rollback_within": rows if per_s else [row | {"seconds": None} for row in rows],
    }


_SAME: Final[dict[str, Any]] = {"large_changed": False, "small_changed": False, "has_gold": False}


@cache
def _controller(step: int, late: bool) -> RolloutController:
    controller = RolloutController(_RULES, **_SAME, started_at=0.0)
    for _ in range(step):
        controller.promote(0.0)
    observed: Callable[..., Observed] = Observed
    for number in range(400):
        cost, small, large = 0.2 + 0.1 * (number % 3), float(number % 7), float(number % 5)
        alike = {"error": False, "fallback": False, "escalated_share": 0.2, "cost": cost}
        tops = {"small_top": small, "large_top": large}
        controller.observe(observed(arm=Arm.STABLE, late=number % 100 == 0, **alike, **tops))
        controller.observe(observed(arm=Arm.CANARY, late=late and number % 3 == 0, **alike, **tops))
    controller.tick(50.0)
    return controller


@dataclass
class FakeDesk:
    """Keep what it was asked; ``raises`` is raised in place of a change, which else sets ``told``."""

    told: dict[str, Any] = field(default_factory=idle)
    entries: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=foreseen)
    raises: CascadeError | None = None
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    then: dict[str, Any] | None = None
    state_fault: str | None = None
    desired_fault: str | None = None

    async def start(self, wanted: str, *, at_once: bool = False, lenient: bool = False) -> dict[str, Any]:
        return self._did("start", wanted, at_once, lenient)

    async def put(self, bundle: bytes) -> str:
        self._did("put", bundle)
        return str(CANDIDATE["digest"])

    async def foresee(self, wanted: str) -> dict[str, Any]:
        self._did("foresee", wanted)
        return self.plan

    async def promote(self, *, force: bool = False) -> dict[str, Any]:
        return self._did("promote", force)

    async def abort(self, reason: str = "") -> dict[str, Any]:
        return self._did("abort", reason)

    def status(self) -> dict[str, Any]:
        return self.told

    def history(self) -> list[dict[str, Any]]:
        return self.entries

    def _did(self, *asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        if self.raises is not None:
            raise self.raises
        self.told = self.then or self.told
        return self.told
