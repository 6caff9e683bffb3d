"""What the desk needs of the room that serves, as protocols: rollout does not import it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cascade.decision import Ranking
from cascade.guard.deadline import Deadline
from cascade.rollout.bundle import Bundle
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.sources.desired import Desired
from cascade.stages.probe import Probe
from cascade.types import Request, StageName

__all__ = [
    "Closes",
    "Controls",
    "Decides",
    "Found",
    "RolloutDesk",
    "Serving",
    "Shown",
    "Source",
    "Splits",
]


class Decides(Protocol):
    """One release at one load level."""

    async def rerank(self, request: Request) -> Ranking:
        """Return the ranking of a valid request before its deadline."""
        ...


class Serving(Protocol):
    """Everything that belongs to one release and can decide requests."""

    @property
    def bundle(self) -> Bundle:
        """Return the release with what it names."""
        ...

    @property
    def digest(self) -> str:
        """Return the digest of the whole release."""
        ...

    @property
    def policy_digest(self) -> str:
        """Return the digest of what decides."""
        ...

    @property
    def name(self) -> str:
        """Return the release's name."""
        ...

    def deciding(self) -> Decides:
        """Return what decides one request: the pipeline of the load level of the moment."""
        ...

    async def start(self) -> None:
        """Start the stages, and settle whether the calibration decides."""
        ...

    async def probe(self, deadline: Deadline) -> Mapping[StageName, Probe]:
        """Score known pairs with every stage."""
        ...

    def unlike(self) -> list[str]:
        """Return where servers are not as declared and the calibration was fitted for others, one sentence each."""
        ...

    async def aclose(self) -> None:
        """Wait for the requests under way, then give back the stages that nobody shares."""
        ...


Release = TypeVar("Release", bound=Serving)


class Splits(Protocol[Release]):
    """Where traffic goes: the stable release, and a share of it to a candidate."""

    @property
    def stable(self) -> Release:
        """Return the release that decides whatever the candidate does not."""
        ...

    @property
    def candidate(self) -> Release | None:
        """Return the release that is being tried, None where there is none."""
        ...

    @property
    def share(self) -> float:
        """Return the candidate's share of the requests."""
        ...

    def activate(self, release: Release) -> Release:
        """Let ``release`` decide all new requests; return the one before, which the caller closes."""
        ...

    def split(self, candidate: Release, share: float) -> None:
        """Let ``candidate`` decide a share of the requests, 0 to 1."""
        ...

    def unsplit(self) -> Release | None:
        """Let the stable release decide all; return the candidate, which the caller closes."""
        ...


class Controls(Protocol):
    """What says of a candidate when it may go on: `RolloutController`."""

    @property
    def share(self) -> float:
        """Return the share of the step."""
        ...

    @property
    def step(self) -> int:
        """Return the place of the step among the release's."""
        ...

    def observe(self, observed: Observed) -> None:
        """Take in one decided request of an arm."""
        ...

    def observe_pair(self, loss: float) -> None:
        """Take in the ranking loss of a pair scored beside, in [-1, 1], above 0 where the candidate is worse."""
        ...

    def pair_left_out(self, outcome: str) -> None:
        """Take note of a request in the shadow's sample that gave no pair, by what became of it."""
        ...

    def observe_gold(self, loss: float) -> None:
        """Take in the ranking loss on a judged query, in [-1, 1]."""
        ...

    def tick(self, now: float) -> RolloutVerdict:
        """Say how to go on; after ADVANCE ``share`` and ``step`` are the next ones already."""
        ...

    @property
    def failed(self) -> bool:
        """Tell whether a guardrail has failed: cheap enough to ask after each answer."""
        ...

    @property
    def is_complete(self) -> bool:
        """Tell whether the candidate has all of the traffic."""
        ...

    def promote(self, now: float) -> None:
        """Go on to the next step without evidence. Raises ConfigError where there is none."""
        ...

    def told(self) -> dict[str, Any]:
        """Return the guardrails with their numbers, and what is waited for."""
        ...

    def state(self) -> dict[str, Any]:
        """Return all of it as plain data, to be restored from after a restart."""
        ...


class Found(Protocol):
    """A bundle that is kept: `Stored`."""

    @property
    def digest(self) -> str:
        """Return the digest of its release."""
        ...

    @property
    def name(self) -> str:
        """Return the name of its release."""
        ...

    @property
    def path(self) -> Path:
        """Return where it lies."""
        ...


class Source(Protocol):
    """Where the desired release is named: looked at again and again, so that no change is missed."""

    def changes(self) -> AsyncIterator[Desired]:
        """Give what is desired, each time that it was looked at or that it changed."""
        ...


class Closes(Protocol):
    """What runs beside a candidate, such as its shadow."""

    async def aclose(self) -> None:
        """Stop, and give everything back."""
        ...


class Shown(Protocol):
    """Where numbers of a rollout are shown: the metrics."""

    def activated(self, outcome: str) -> None:
        """Count an activation by its outcome: ``swapped`` or the step that refused it."""
        ...

    def rollout(self, step: int | None, share: float, guardrails: Mapping[str, int]) -> None:
        """Show the step, None where no rollout is under way, the candidate's share, and each guardrail.

        A guardrail is -1 where it fails, 0 inconclusive, 1 where it passes.
        """
        ...


class RolloutDesk(Protocol):
    """What the admin listener asks of the desk.

    Every method that changes something raises `ConfigError` where it cannot be done (an unknown release, none under
    way), and ``start`` and ``put`` raise `Refused` with the step and why.
    """

    async def start(self, wanted: str, *, at_once: bool = False, lenient: bool = False) -> dict[str, Any]:
        """Activate a release by digest or name and begin its steps; return the status once it is active."""
        ...

    async def put(self, bundle: bytes) -> str:
        """Take an uploaded bundle, the bytes of a tar, and return its digest, to be started by."""
        ...

    async def foresee(self, wanted: str) -> dict[str, Any]:
        """Return what a release will have to show at its steps, and how soon harm would be met; it begins nothing."""
        ...

    async def promote(self, *, force: bool = False) -> dict[str, Any]:
        """Go on to the next step: with ``force`` without evidence."""
        ...

    async def abort(self, reason: str = "") -> dict[str, Any]:
        """Take the candidate back, or end its activation."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what is desired, active and being tried, and the guardrails with their numbers."""
        ...

    def history(self) -> list[dict[str, Any]]:
        """Return what happened, latest first, with the evidence of each step."""
        ...

    @property
    def desired_fault(self) -> str | None:
        """Return why what the watched source names cannot be used, None where it can, and where none is watched."""
        ...
