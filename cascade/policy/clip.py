"""Clip what is scored to the caller's own limits. What is echoed is never clipped."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.text import Text
from cascade.tokens import PAIR_OVERHEAD_TOKENS, clip_to_tokens, estimate_tokens
from cascade.types import Request

__all__ = ["texts_to_score"]


def texts_to_score(request: Request, indices: Sequence[int]) -> tuple[Text, list[Text]]:
    """Return the query and the documents at ``indices`` as they leave for a stage.

    Within a limit for pairs the query has half, or what the longest document leaves; documents have
    what the query leaves.
    """
    query = _clip(request.query, request.max_query_tokens)
    documents = [_clip(request.candidates[index].text, request.max_document_tokens) for index in indices]
    if request.max_pair_tokens is None:
        return query, documents
    room = max(2, request.max_pair_tokens - PAIR_OVERHEAD_TOKENS)
    longest = max((estimate_tokens(document.reveal()) for document in documents), default=0)
    for_query = max(room // 2, room - longest)
    left = room - min(for_query, estimate_tokens(query.reveal()))
    query = _clip(query, for_query)
    return query, [_clip(document, left) for document in documents]


def _clip(text: Text, tokens: int | None) -> Text:
    return text if tokens is None else Text(clip_to_tokens(text.reveal(), tokens))
