"""A stage that orders a list: the whole of it in one call, or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, cast

import orjson

from cascade.errors import StageRefused
from cascade.guard.deadline import Deadline
from cascade.policy.stage_specs import ChatStage
from cascade.stages.calls import RoundFailed
from cascade.stages.chat import answer_tokens
from cascade.stages.chunking import Piece
from cascade.stages.http import HttpReranker
from cascade.stages.list_prompt import ListForm
from cascade.stages.round import Round
from cascade.stages.sending import Sending
from cascade.stages.serializers import Serializer
from cascade.stages.wire import Fault, FaultKind
from cascade.text import Text
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN, beginning_of, clip_to_tokens, estimate_tokens

__all__ = ["ListReranker"]

_LABEL_TOKENS: Final = 4
_TEMPLATE_TOKENS: Final = 32
"""What a chat template puts around two messages."""
_LEAST_PASSAGE: Final = 8
"""With fewer tokens a passage, an order says nothing of the documents."""
_ON_ONE_LINE_FIRST: Final = 1000
"""Characters of a text that is put on one line before it is cut: the score cache takes those that are one line alike for one."""
_SPARE: Final = 0.85
_UNCOUNTED: Final = 0.5


@dataclass(slots=True)
class ListRound(Round):
    """One list on its way. ``passage_tokens`` is the room of a passage, ``answer`` that of the answer."""

    passage_tokens: int = 0
    answer: int = 0

    def tokens_of(self, chunk: Sequence[Piece]) -> int:
        """Estimate the tokens of the prompt: the query stands there once."""
        return min(self.query_tokens + sum([piece.tokens + _LABEL_TOKENS for piece in chunk]), self.max_length)

    def shorter(self, chunk: Sequence[Piece], fault: Fault) -> list[Piece] | None:
        """Cut every passage by one share, from what the server counted; None where that was tried or leaves too little.

        vLLM counts no further than its limit, and then says "at least": that tells nothing of the share.
        """
        texts = sum([piece.tokens for piece in chunk])
        around = self.query_tokens + _LABEL_TOKENS * len(chunk)
        share = _UNCOUNTED
        if fault.given and not fault.given_at_least:
            limit = min(fault.limit or self.max_length, self.max_length) - self.answer
            share = (_SPARE * limit / fault.given * (texts + around) - around) / texts
        share = min(share, _SPARE)
        if share * max([piece.tokens for piece in chunk]) < _LEAST_PASSAGE or any(piece.last_try for piece in chunk):
            return None
        return [self._cut(piece, max(_LEAST_PASSAGE, int(piece.tokens * share))) for piece in chunk]

    def _cut(self, piece: Piece, room: int) -> Piece:
        text = clip_to_tokens(piece.text, room)
        return _piece(piece.position, text, self.serializer)._replace(
            shortened=piece.shortened or len(text) < len(piece.text), last_try=True
        )


class ListSending(Sending):
    """Send a list whole. One that the server finds too long is cut once, every passage alike, and sent again."""

    async def send(self, round_: Round) -> None:
        if not round_.pieces:
            return
        if cast("ListRound", round_).passage_tokens < _LEAST_PASSAGE:
            raise RoundFailed(StageRefused, "too_long")
        await self._send(round_, round_.pieces)

    def _texts_of(self, chunk: Sequence[Piece]) -> int:
        return 1

    async def _mend(self, round_: Round, chunk: list[Piece], fault: Fault, route: str) -> None:
        shorter = cast("ListRound", round_).shorter(chunk, fault) if fault.kind is FaultKind.TOO_LONG else None
        if shorter is None:
            raise RoundFailed(StageRefused, fault.code)
        await self._send(round_, shorter)


class ListReranker(HttpReranker):
    """Order documents at one server, all those of a round in one call.

    A score is a place in that order and nothing more. Everything that guards calls is `HttpReranker`'s; but a call that
    the server may have worked on is never made again, since an order is dear.
    """

    _sends: ClassVar[type[Sending]] = ListSending

    @property
    def is_listwise(self) -> bool:
        return True

    def pair_tokens(
        self, query: Text, documents: Sequence[Text], *, deadline: Deadline, instruction: Text | None = None
    ) -> list[int]:
        """Return the tokens of the whole prompt at the first place: what it is made of is never sent apart."""
        round_ = self._begin(query, documents, instruction, "", deadline)
        tokens = [0] * len(documents)
        if tokens:
            tokens[0] = round_.tokens_of(round_.pieces)
        return tokens

    def _begin(
        self, query: Text, documents: Sequence[Text], instruction: Text | None, call_id: str, deadline: Deadline
    ) -> ListRound:
        """Prepare a prompt that fits: query and passages are cut to their room by estimate, and blank documents left out."""
        spec, written = cast("ChatStage", self._spec), self._serializer
        form = cast("ListForm", written.listed)  # else the stage would not have been made
        kept = [position for position, document in enumerate(documents) if not document.is_blank]
        answer = answer_tokens(spec, len(kept))
        told = spec.instruction if instruction is None else instruction.reveal()
        fixed = estimate_tokens(form.fixed) + estimate_tokens(written.query("", told)) + _TEMPLATE_TOKENS
        left = self._max_length - answer - fixed
        asked, clipped = _cut(query.reveal(), max(1, left // 4), written)
        around = fixed + estimate_tokens(asked)
        room = min(spec.passage_tokens, (self._max_length - answer - around) // max(1, len(kept)) - _LABEL_TOKENS)
        pieces = []
        for position in kept:
            text, shortened = _cut(documents[position].reveal(), max(1, room), written)
            pieces.append(_piece(position, text, written)._replace(shortened=shortened))
        return ListRound(
            count=len(documents),
            query=orjson.dumps(written.query(asked, told)),
            query_tokens=around,
            query_clipped=clipped,
            pieces=pieces,
            serializer=written,
            max_length=self._max_length,
            server_clips=False,
            request_ids=(f"{call_id}-{number}" for number in itertools.count()),
            route=self._sending.route,
            deadline=deadline,
            instruction=told,
            passage_tokens=room,
            answer=answer,
        )


def _cut(whole: str, tokens: int, written: Serializer) -> tuple[str, bool]:
    """Return a text on one line, of about so many tokens at most, and whether something was left out."""
    beginning = beginning_of(whole, max(_ON_ONE_LINE_FIRST, tokens * MOST_CHARACTERS_PER_TOKEN))
    line = written.flat(beginning)
    text = clip_to_tokens(line, tokens)
    return text, len(text) < len(line) or len(beginning) < len(whole)


def _piece(position: int, text: str, written: Serializer) -> Piece:
    line = written.document(text)
    return Piece(position, text, orjson.dumps(line), estimate_tokens(line))
