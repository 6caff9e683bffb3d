"""Decision records: what was known and decided of one request, as a line of JSON without text.

A line of kind ``head`` says what the scores behind it depend on: release, digests, fingerprints. A
line of kind ``decision`` names its head. Arrays go by position in the request's candidates; null is
a score that is not there. Queries, and documents by the caller's id or else by their text, appear as
keyed hashes: equal ones can be told from one request to the next, and none can be guessed without the key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

import orjson

from cascade.calibration.calibrated import Calibration
from cascade.decision import Decision, Round
from cascade.policy.release import Release
from cascade.policy.shadow import Shadow, shadow_decision
from cascade.signals.query import classify, count_identifiers
from cascade.telemetry.logs import decision_record, rounded
from cascade.telemetry.record_file import Record
from cascade.tokens import PAIR_OVERHEAD_TOKENS, estimate_tokens
from cascade.types import Arm, Candidate, Request

__all__ = [
    "FORMAT",
    "KEY_CHECK",
    "MOST_CHANNELS",
    "Assignment",
    "Decided",
    "RecordFormat",
    "Recorder",
    "Source",
    "is_sampled",
]

FORMAT: Final = "cascade-records/1"
KEY_CHECK: Final = "\0which key"
"""What is hashed to tell records of one key from those of another; no query is this."""
MOST_CHANNELS: Final = 16
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HASH_SPACE: Final = 2**64


@dataclass(frozen=True, slots=True)
class Assignment:
    """How a request came to the arm that decides it.

    ``arm`` and ``probability`` are of the moment the request was given to it, whatever its release is by the time it
    is decided; ``arm`` is None where that of the pipeline holds. Of a canary the probability is its share, of the stable
    release what is left, 1 where nothing was split. A shadow is ``of`` the decision with that id, and its
    probability that of both being made.
    """

    probability: float = 1.0
    of: str | None = None
    arm: Arm | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """One decided request with everything that a record derives from.

    Scores go by candidate index, raw; ``excluded`` has the indices that a stage left out. In mode
    ``observe``, ``beside`` is the small stage's round beside the answer, and ``dropped`` tells that
    there was no room for one. ``assigned`` tells how it came to its arm.
    """

    request: Request
    decision: Decision
    release: Release
    calibration: Calibration | None
    small: Mapping[int, float]
    large: Mapping[int, float]
    excluded: frozenset[int] = frozenset()
    beside: Round | None = None
    dropped: bool = False
    assigned: Assignment = Assignment()


class Recorder(Protocol):
    """Take decided requests to be kept."""

    def wants(self, query_hash: str) -> bool:
        """Tell whether requests of this query are kept."""
        ...

    def record(self, decided: Decided) -> None:
        """Keep one, without waiting and without raising."""
        ...


def is_sampled(query_hash: str, share: float) -> bool:
    """Tell whether a query is among the ``share`` that is kept: by its keyed hash, so that it always is or never."""
    return int(query_hash, 16) < share * _HASH_SPACE


@dataclass(frozen=True, slots=True)
class Source:
    """What all records of one release have in common. ``scorers`` tells what each stage is and its server says now: plain data, or frozen."""

    release: Release
    release_digest: str
    policy_digest: str
    sample: float
    scorers: Callable[[], Mapping[str, Any]]
    hash_text: Callable[[str], str]


class RecordFormat:
    """Write the records of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._key = source.hash_text(KEY_CHECK)

    def record(self, decided: Decided, at: datetime) -> Record:
        """Return the line of a decided request, and the head that it stands under."""
        return self.making(decided, at)()

    def making(self, decided: Decided, at: datetime) -> Callable[[], Record]:
        """Return what makes the record, off the answers' path; what its servers say of themselves is looked at now."""
        scorers = self.source.scorers()

        def make() -> Record:
            head = self._head(scorers)
            told = {"kind": "decision", "head": head["id"], "time": at.isoformat(timespec="milliseconds")}
            return Record(_line(head), _line(told | self._decision(decided)))

        return make

    def _head(self, scorers: Mapping[str, Any]) -> dict[str, Any]:
        source = self.source
        told: dict[str, Any] = {
            "format": FORMAT,
            "release": source.release.release,
            "release_digest": source.release_digest,
            "policy_digest": source.policy_digest,
            "mode": source.release.mode,
            "key": self._key,
            "scorers": scorers,
        }
        return {"kind": "head", "id": hashlib.sha256(_line(told)).hexdigest()[:16]} | told

    def _decision(self, decided: Decided) -> dict[str, Any]:
        request, decision = decided.request, decided.decision
        count = len(request.candidates)
        query = request.query.reveal()
        identifiers = count_identifiers(query)
        tokens = estimate_tokens(query)
        rounds = decision.rounds if decided.beside is None else (*decision.rounds, decided.beside)
        told = decision_record(replace(decision, rounds=rounds))
        told |= {
            "arm": decision.arm,
            "of": decided.assigned.of,
            "outcome": "refused" if decision.degraded and decided.release.refuses(request) else "answered",
            "sample": self.source.sample,
            "propensity": self.source.sample * decided.assigned.probability,
            "q_class": classify(query, identifiers),
            "q_tokens": tokens,
            "q_identifiers": identifiers,
            "instruction": None if request.instruction is None else self._hash(request.instruction.reveal()),
            "excluded": sorted(decided.excluded),
            "ids": [self._document(candidate) for candidate in request.candidates],
            "tokens": [
                tokens + estimate_tokens(candidate.text.reveal()) + PAIR_OVERHEAD_TOKENS
                for candidate in request.candidates
            ],
            "small": _by_position(decided.small, count),
            "large": _by_position(decided.large, count),
            "beside": _beside(decided),
            "would": _would(decided),
        }
        return told | _channels(request.candidates)

    def _document(self, candidate: Candidate) -> str:
        return self._hash(candidate.text.reveal() if candidate.id is None else candidate.id)

    def _hash(self, text: str) -> str:
        return self.source.hash_text(text)


def _line(told: Mapping[str, Any]) -> bytes:
    return orjson.dumps(dict(told), option=orjson.OPT_APPEND_NEWLINE)


def _by_position(scores: Mapping[int, float], count: int) -> list[float | None]:
    return [scores.get(index) for index in range(count)]


def _channels(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return channels of a plain name; of another it is not known that its name is no text, so it is only counted."""
    names = list(dict.fromkeys(name for candidate in candidates for name in candidate.scores))
    kept = [name for name in names if _PLAIN_NAME.fullmatch(name)][:MOST_CHANNELS]
    return {
        "channels": {name: [candidate.scores.get(name) for candidate in candidates] for name in kept},
        "channels_left_out": len(names) - len(kept),
    }


def _beside(decided: Decided) -> str | None:
    if decided.dropped:
        return "dropped"
    return None if decided.beside is None else decided.beside.outcome


def _would(decided: Decided) -> dict[str, Any] | None:
    """Return what the release would have decided in mode ``cascade``, None where it did or small scores are missing."""
    if decided.beside is None or decided.beside.outcome != "ok":
        return None
    shadow = shadow_decision(decided.release, decided.request, decided.small, decided.large, decided.calibration)
    return _told_shadow(shadow)


def _told_shadow(shadow: Shadow) -> dict[str, Any]:
    return {
        "depth": shadow.depth,
        "depth_reason": shadow.depth_reason,
        "action": shadow.action,
        "escalated": list(shadow.escalated),
        "rounds": shadow.rounds,
        "estimates": None if shadow.estimates is None else rounded(asdict(shadow.estimates)),
        "misfit": shadow.misfit,
        "query_class": shadow.query_class,
        "signals": rounded(shadow.signals),
    }
