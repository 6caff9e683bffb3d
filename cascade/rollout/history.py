"""What is remembered of rollouts: what happened, and what a restart goes on from."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.errors import ConfigError
from cascade.rollout.artefacts import read_bounded
from cascade.telemetry.folders import keep_names

__all__ = [
    "MOST_ENTRIES",
    "UNDER_WAY",
    "Entry",
    "Happened",
    "Keeps",
    "KeptCandidate",
    "KeptRelease",
    "Remembered",
    "RolloutState",
    "StateFile",
    "TurnedDown",
]

MOST_ENTRIES: Final = 100
_MOST_ATTEMPTS: Final = 2
"""How often in a row the process may be killed while one release is activated or tried; it may be that release."""
_STATE_NAME: Final = "rollout.json"
_LARGEST: Final = 64 * 2**20
"""Bytes. A hundred entries with their evidence have some hundred thousand."""
_ASIDE: Final = f".{_STATE_NAME}-"


class RolloutState(StrEnum):
    """What the desk is doing, or did last. The list is closed."""

    IDLE = "idle"
    ACTIVATING = "activating"
    RUNNING = "running"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"
    ABORTED = "aborted"
    REPLACED = "replaced"


UNDER_WAY: Final = frozenset({RolloutState.ACTIVATING, RolloutState.RUNNING})


class Happened(StrEnum):
    """What an entry of the history is about. The list is closed."""

    SERVED = "served"
    STARTED = "started"
    RESUMED = "resumed"
    ADVANCED = "advanced"
    PROMOTED = "promoted"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    REPLACED = "replaced"
    REFUSED = "refused"


_TAKEN_BACK: Final = frozenset({Happened.ROLLED_BACK, Happened.ABORTED})
_SETTLES: Final = _TAKEN_BACK | {Happened.SERVED, Happened.COMPLETED}
"""What tells the last of a release: whether it was taken back, or got all traffic."""


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Entry(_Kept):
    """One thing that happened, with the evidence that there was: the guardrails' numbers of that moment.

    ``share`` is the candidate's from then on, ``step`` the place of the activation step that refused, or of the
    rollout's step.
    """

    at: str
    what: Happened
    release: str
    digest: str | None
    share: float = 0.0
    step: str | int | None = None
    at_once: bool = False
    lenient: bool = False
    why: tuple[str, ...] = ()
    evidence: dict[str, Any] | None = None


def _is_again(before: Entry, entry: Entry) -> bool:
    return entry.what is Happened.REFUSED and before.model_copy(update={"at": entry.at}) == entry


class KeptRelease(_Kept):
    """A release that serves, by its digest, and since when."""

    release: str
    digest: str
    policy_digest: str = ""
    activated_at: str


class KeptCandidate(_Kept):
    """A release that is being tried: times, and the controller's state, None before it was active.

    ``attempts`` counts how often in a row it was brought in by a process that did not outlive it: that was killed while
    it was activated or tried, as far as is known.
    """

    release: str
    digest: str
    path: str
    asked_at: str
    downloaded_at: str | None = None
    activated_at: str | None = None
    by_source: bool = False
    lenient: bool = False
    at_once: bool = False
    attempts: int = 0
    controller: dict[str, Any] | None = None

    @property
    def is_given_up(self) -> bool:
        """Tell whether a process that starts does not bring it in again: it may be what kills each."""
        return self.attempts >= _MOST_ATTEMPTS

    @property
    def killed(self) -> str:
        """Say why it is given up."""
        return f"the process was killed {self.attempts} times in a row while it was activated or tried"


class TurnedDown(_Kept):
    """A release that does not serve: refused at an activation step, rolled back or aborted."""

    digest: str
    release: str
    step: str
    why: tuple[str, ...]
    at: str


class Remembered(_Kept):
    """All that the state folder holds.

    ``seen`` is the source's desired digest that was dealt with last: it is not tried again before the source names
    another. ``refused`` is the release that was turned down last, by an activation step or by a guardrail.
    """

    version: int = Field(default=1, ge=1, le=1)
    state: RolloutState = RolloutState.IDLE
    stable: KeptRelease | None = None
    candidate: KeptCandidate | None = None
    seen: str | None = None
    refused: TurnedDown | None = None
    history: tuple[Entry, ...] = ()

    def with_entry(self, entry: Entry) -> Remembered:
        """Return it with one thing more that happened; the oldest go.

        A refusal that came again, as of a release whose server stays away, takes the place of the one before.
        """
        before = self.history[:-1] if self.history and _is_again(self.history[-1], entry) else self.history
        return self.model_copy(update={"history": (*before, entry)[-MOST_ENTRIES:]})

    def taken_back(self) -> frozenset[str]:
        """Return the digests of what a guardrail or an operator took back, and that did not decide all traffic since."""
        last = {} if self.refused is None else {self.refused.digest: self.refused.step}
        last |= {entry.digest: entry.what for entry in self.history if entry.digest and entry.what in _SETTLES}
        return frozenset(digest for digest, what in last.items() if what in _TAKEN_BACK)

    def name_of(self, digest: str) -> str:
        """Return the name of a release that is known here, else nothing."""
        names = {entry.digest: entry.release for entry in self.history}
        if self.stable is not None:
            names[self.stable.digest] = self.stable.release
        return names.get(digest, "")


class Keeps(Protocol):
    """Where what is remembered is kept."""

    def read(self) -> Remembered | None:
        """Return what was kept, None where there is nothing. Raises ConfigError for what cannot be read."""
        ...

    def write(self, remembered: Remembered) -> None:
        """Keep it whole or not at all. Raises OSError."""
        ...


class StateFile:
    """Keep it in a file of a folder, replaced atomically: a kill at any moment leaves the one before or the new one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _STATE_NAME

    def read(self) -> Remembered | None:
        """Return what was kept, None where there is nothing. Raises ConfigError for what cannot be read.

        What an end in the middle of writing left is cleared away.
        """
        with suppress(OSError):
            for left in self._path.parent.glob(f"{_ASIDE}*"):
                left.unlink(missing_ok=True)
        try:
            if not self._path.exists():
                return None
            data = read_bounded(self._path, _LARGEST, plain=True)
        except OSError as error:
            raise ConfigError(f"state_folder: {_STATE_NAME} cannot be read: {type(error).__name__}") from None
        except ConfigError as error:
            raise ConfigError(f"state_folder: {error}") from None
        try:
            return Remembered.model_validate_json(data)
        except ValidationError:
            raise ConfigError(f"state_folder: {_STATE_NAME} is not what this version writes") from None

    def write(self, remembered: Remembered) -> None:
        """Write aside, flush to disk, then move into place. Raises OSError."""
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=_ASIDE, dir=folder)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(orjson.dumps(remembered.model_dump(mode="json"), option=orjson.OPT_INDENT_2))
                stream.flush()
                os.fsync(stream.fileno())
            Path(aside).replace(self._path)
        except BaseException:
            with suppress(OSError):
                Path(aside).unlink()
            raise
        keep_names(folder)
