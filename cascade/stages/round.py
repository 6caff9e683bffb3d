"""One round at a server: what is sent, what has come back, and how a document is made to fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import orjson

from cascade.guard.deadline import Deadline
from cascade.stages.chunking import Clip, Piece
from cascade.stages.serializers import Serializer
from cascade.stages.wire import ChunkAnswer, Fault
from cascade.telemetry.work import Counted, ReadPairs
from cascade.text import Text
from cascade.tokens import (
    MOST_CHARACTERS_PER_TOKEN,
    PAIR_OVERHEAD_TOKENS,
    beginning_of,
    clip_to_tokens,
    estimate_tokens,
)
from cascade.types import Exclusion, StageCost, StageScores

__all__ = ["Round", "begin_round", "parts", "set_apart"]


@dataclass(slots=True)
class Round:
    """What one round gathers while its chunks come back.

    ``route`` is where its calls go now, ``missing`` the routes that the server said it has not;
    ``left`` holds the positions of documents that have left, ``left_at`` is when the first did. ``room_ms`` is the
    longest wait for room, None where no call had to wait, ``slowest_call_ms`` the longest call. ``queued`` tells that all
    calls that were given up stood in the server's queue, None where none was given up; ``given_up_ms`` is how long ago the
    longest of them had left. ``answered_texts`` counts those of calls whose scores count.
    """

    count: int
    query: bytes = field(repr=False)
    query_tokens: int
    query_clipped: bool
    pieces: list[Piece]
    serializer: Serializer
    max_length: int
    server_clips: bool
    request_ids: Iterator[str]
    route: str
    deadline: Deadline
    instruction: str | None = field(default=None, repr=False)
    scores: dict[int, float] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    shortened: set[int] = field(default_factory=set)
    clipped: int = 0
    left_at: float | None = None
    room_ms: float | None = None
    slowest_call_ms: float = 0.0
    queued: bool | None = None
    given_up_ms: float = 0.0
    answered_texts: int = 0
    calls: int = 0
    tokens: int = 0
    tokens_estimated: bool = False
    estimated_tokens: int = 0
    repaired: int = 0
    prefix_tokens: int | None = None
    slowest: dict[str, float] = field(default_factory=dict)

    def leaves(self, positions: set[int], at: float) -> None:
        """Note that a call leaves, and which documents leave with it for the first time."""
        self.calls += 1
        self.left |= positions
        if self.left_at is None:
            self.left_at = at

    def gives_up(self, ms: float, *, queued: bool) -> None:
        """Note that nobody waits any longer for a call that left so long ago, and whether it stands in the server's queue."""
        self.queued = queued and self.queued is not False
        self.given_up_ms = max(self.given_up_ms, ms)

    @property
    def queue_ms(self) -> float | None:
        """Return how long a round that was given up has stood in the server's queue by its longest call, None where it is not known to."""
        return self.given_up_ms if self.queued else None

    def tokens_of(self, chunk: Sequence[Piece]) -> int:
        """Estimate the tokens of a chunk, as far as the model reads them."""
        query, most = self.query_tokens, self.max_length
        return sum([min(piece.tokens + query, most) for piece in chunk])

    def keep(self, chunk: Sequence[Piece], answer: ChunkAnswer) -> None:
        """Keep the scores of a chunk by position, and add up its cost; chunks run together, so the slowest counts."""
        for piece, score in zip(chunk, answer.scores, strict=True):
            self.scores[piece.position] = score
            if piece.last_try:
                self.shortened.add(piece.position)
        estimated = self.tokens_of(chunk)
        self.estimated_tokens += estimated
        self.tokens += estimated if answer.tokens is None else answer.tokens
        self.tokens_estimated |= answer.tokens is None
        self.clipped += self._clipped(chunk)
        self.repaired += answer.repaired
        if answer.prefix_tokens is not None:
            self.prefix_tokens = (self.prefix_tokens or 0) + answer.prefix_tokens
        for name, milliseconds in (
            ("tokenize", answer.tokenize_ms),
            ("queue", answer.queue_ms),
            ("compute", answer.compute_ms),
            ("server", answer.server_ms),
        ):
            if milliseconds is not None:
                self.slowest[name] = max(milliseconds, self.slowest.get(name, 0.0))

    def _clipped(self, chunk: Sequence[Piece]) -> int:
        """Count the pairs of a chunk that were not read whole."""
        if self.query_clipped:
            return len(chunk)
        most = self.max_length - self.query_tokens if self.server_clips else math.inf
        return sum([piece.shortened or piece.tokens > most for piece in chunk])

    def clip(self, piece: Piece, fault: Fault) -> Piece | None:
        """Clip a refused document from the limit that the server stated; None when that was tried or leaves nothing.

        The text is cut, never what a serializer puts around it. A stated limit above the stage's own
        does not count: llama.cpp names its batch size before its context size.
        """
        limit = min(fault.limit or self.max_length, self.max_length)
        around = estimate_tokens(self.serializer.document("")) if self.serializer.owns_template else 0
        room = limit - self.query_tokens - around
        given = (fault.given or limit + 1) - self.query_tokens - around
        if fault.given is None or fault.given_at_least:
            given = max(given, piece.tokens - around)
        text = clip_to_tokens(piece.text, room, measured_tokens=given)
        if piece.last_try or Text(text).is_blank or len(text) == len(piece.text):
            return None
        shorter = _piece(piece.position, text, self.serializer)._replace(shortened=True, last_try=True)
        if self.serializer.owns_template:  # the server would cut the template's end
            return shorter
        most = max(1, room * 9 // 10)
        return shorter._replace(clip_to=Clip(query=max(1, limit - PAIR_OVERHEAD_TOKENS - most), document=most))

    def read_as(self) -> ReadPairs:
        """Return how long the pairs are, by estimate, scaled to what the server counted where it told of every call."""
        told = not self.tokens_estimated and self.tokens > 0
        scale = self.tokens / self.estimated_tokens if told else 1.0
        return ReadPairs(
            Counted.TOLD if told else Counted.ESTIMATED,
            (self.query_tokens - PAIR_OVERHEAD_TOKENS) * scale,
            [(piece.tokens + self.query_tokens) * scale for piece in self.pieces],
        )

    def result(self) -> StageScores:
        """Return the scores of a round whose every chunk has come back."""
        sent = {piece.position for piece in self.pieces}
        excluded = {position: Exclusion.BLANK for position in range(self.count) if position not in sent}
        excluded |= dict.fromkeys(self.refused, Exclusion.REFUSED)
        cost = StageCost(
            calls=self.calls,
            tokens=self.tokens,
            tokens_estimated=self.tokens_estimated,
            truncated=self.clipped,
            tokenize_ms=self.slowest.get("tokenize"),
            queue_ms=self.slowest.get("queue"),
            compute_ms=self.slowest.get("compute"),
            server_ms=self.slowest.get("server"),
            room_ms=self.room_ms,
            repaired=self.repaired,
            prefix_tokens=self.prefix_tokens,
        )
        scores = tuple(self.scores.get(position) for position in range(self.count))
        return StageScores(scores, excluded, cost, frozenset(self.shortened))


def begin_round(
    query: Text,
    documents: Sequence[Text],
    *,
    serializer: Serializer,
    instruction: str | None,
    max_length: int,
    server_clips: bool,
    most_characters: int | None = None,
    route: str,
    call_id: str,
    deadline: Deadline,
) -> Round:
    """Prepare what is sent: blank documents are not, and of no text what lies far beyond the longest pair.

    A server that clips by itself knows its tokens and is given the query whole. At any other the query is
    clipped, by estimate, to half of the longest pair: a longer one would have every document refused.
    A serializer's template must reach the model whole, so with one both texts are clipped here.
    """
    far = max_length * MOST_CHARACTERS_PER_TOKEN
    most = min(far, most_characters or far)
    clips_here = serializer.owns_template or not server_clips
    whole = query.reveal()
    text = beginning_of(whole, most)
    if clips_here:
        around = estimate_tokens(serializer.query("", instruction)) if serializer.owns_template else 0
        text = clip_to_tokens(text, max(1, max_length // 2 - around))
    written = serializer.query(text, instruction)
    query_tokens = estimate_tokens(written) + PAIR_OVERHEAD_TOKENS
    # a server that cuts in silence would cut the template's end
    room = max(1, max_length - query_tokens) if serializer.owns_template and server_clips else None
    return Round(
        count=len(documents),
        query=orjson.dumps(written),
        query_tokens=query_tokens,
        query_clipped=len(text) < len(whole),
        pieces=[
            _whole_or_beginning(position, document.reveal(), serializer, most, room)
            for position, document in enumerate(documents)
            if not document.is_blank
        ],
        serializer=serializer,
        max_length=max_length,
        server_clips=server_clips,
        request_ids=(f"{call_id}-{number}" for number in itertools.count()),
        route=route,
        deadline=deadline,
        instruction=instruction,
    )


def _whole_or_beginning(position: int, text: str, serializer: Serializer, most: int, room: int | None) -> Piece:
    """Prepare a document, cut to ``most`` characters and, where ``room`` is given, to so many tokens by estimate."""
    if room is None and len(text) <= most:
        return _piece(position, text, serializer)
    beginning = beginning_of(text, most)
    if room is not None:
        beginning = clip_to_tokens(beginning, max(1, room - estimate_tokens(serializer.document(""))))
    piece = _piece(position, beginning, serializer)
    return piece._replace(shortened=True) if len(beginning) < len(text) else piece


def _piece(position: int, text: str, serializer: Serializer) -> Piece:
    written = serializer.document(text)
    return Piece(position, text, orjson.dumps(written), estimate_tokens(written))


def parts(chunk: list[Piece], size: int) -> list[list[Piece]]:
    """Cut a chunk into chunks of at most ``size`` pieces."""
    return [chunk[start : start + size] for start in range(0, len(chunk), size)]


def set_apart(chunk: list[Piece], query_tokens: int, limit: int) -> list[list[Piece]]:
    """Send the documents that may be too long alone and the rest together; all alone where that tells nothing."""
    long = [piece for piece in chunk if piece.tokens + query_tokens > limit // 2]
    if not long or len(long) == len(chunk):
        return [[piece] for piece in chunk]
    return [[piece for piece in chunk if piece not in long], *([piece] for piece in long)]
