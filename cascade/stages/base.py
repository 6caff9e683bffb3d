"""The contract that every stage keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cascade.guard.deadline import Deadline
from cascade.guard.events import Guarded
from cascade.guard.expected_ms import ExpectedMs
from cascade.text import Text
from cascade.types import Fingerprint, ScoreSpace, StageScores

__all__ = ["Congestion", "Observed", "Stage"]

_STALE_SECONDS: Final = 15.0
_SILENT_SECONDS: Final = 10 * _STALE_SECONDS


@dataclass(frozen=True, slots=True)
class Observed:
    """What a server says of itself. None where it does not say.

    ``attention`` is how a model inside the sidecar was found to run, and why so where something else was asked for, and
    ``weights_sha256`` the digest of the files that it was loaded from.
    """

    model: str | None = None
    revision: str | None = None
    dtype: str | None = None
    version: str | None = None
    max_length: int | None = None
    max_texts: int | None = None
    max_in_flight_texts: int | None = None
    attention: str | None = None
    weights_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Congestion:
    """Load as a server told it at ``at``, seconds on the stage's clock; None for what it does not tell.

    ``waiting`` and ``running`` count pairs, ``queue_ms`` is how long the pairs of an answer waited.
    """

    at: float
    queue_ms: float | None = None
    waiting: float | None = None
    running: float | None = None

    def is_stale(self, now: float) -> bool:
        """Tell whether it is too old to say anything of now. What is stale is unknown, never idle."""
        return now - self.at > _STALE_SECONDS

    def is_silent(self, now: float) -> bool:
        """Tell whether it is so old that the server counts as one that tells nothing of its load."""
        return now - self.at > _SILENT_SECONDS


class Stage(Protocol):
    """Score documents for a query: the whole round or an error."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Return what the stage's scores depend on, as the release declares it."""
        ...

    @property
    def space(self) -> ScoreSpace:
        """Return the declared space of the raw scores."""
        ...

    @property
    def observed(self) -> Observed | None:
        """Return what the server said of itself, None until it has been asked with success."""
        ...

    @property
    def unusable(self) -> str | None:
        """Return why the server cannot serve this stage, None where nothing speaks against it."""
        ...

    async def start(self) -> None:
        """Load, or ask the server for its limits.

        Returns soon even where a server does not answer: then it is asked again in the background.
        """
        ...

    async def look_again(self) -> bool:
        """Ask the server once more what it is, for ``observed``; tell whether it said.

        What it does not say leaves what is known. Never raises a StageError.
        """
        ...

    @property
    def congestion(self) -> Congestion | None:
        """Return what the server last told of its load, None where it has told nothing."""
        ...

    @property
    def expected(self) -> ExpectedMs:
        """Return how long rounds of this stage took. Who asks for rounds keeps it."""
        ...

    @property
    def guarded(self) -> Guarded | None:
        """Return what is let through to the server now, None where there is no server."""
        ...

    async def returned(self) -> None:
        """Wait until the server answers again after it was lost: it may be another then."""
        ...

    @property
    def takes_instruction(self) -> bool:
        """Tell whether an instruction of the caller's reaches the model."""
        ...

    @property
    def is_listwise(self) -> bool:
        """Tell whether a document's score depends on the others of its round, and on their order."""
        ...

    @property
    def is_identified(self) -> bool:
        """Tell whether what scores is known to be what ``observed`` tells of: it was asked, and not lost since."""
        ...

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        """Return one finite score a document, in the order given, None for an excluded one.

        Blank documents are not sent. ``call_id`` begins the request id of every upstream call.
        Raises StageError where the round does not count; nothing of the round is kept then. Work
        that is still under way at ``deadline``, or when the caller is cancelled, is cancelled.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections, threads and memory."""
        ...
