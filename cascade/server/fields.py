"""The names of fields that some reranker's clients send, and what is told of those that do nothing here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

__all__ = ["HEADER_FIELDS", "KNOWN_FIELDS", "ignored_fields", "logged_field"]

_MEANT: Final = (
    "query", "texts", "documents", "input", "candidates", "text_1", "text_2", "queries", "items", "data_1", "data_2",
    "top_n", "top_k", "return_documents", "return_text", "return_input", "return_len", "raw_scores", "use_activation",
    "activation", "softmax", "normalize", "instruction", "instruct", "chat_template_kwargs", "mm_processor_kwargs",
    "truncate", "truncation", "truncation_direction", "truncation_side", "truncate_prompt_tokens",
    "max_tokens_per_doc", "max_tokens_per_query", "max_chunks_per_doc", "overlap_tokens", "padding", "rank_fields",
    "relevant_spans", "rewrite_query", "priority", "model", "user", "request_id", "cache_salt", "encoding_format",
    "deadline_ms", "tenant", "fail_closed", "explain", "first_stage",
)  # fmt: skip
_MISSPELT: Final = (
    "topn", "topN", "topk", "topK", "top", "instructions", "is_truncated", "truncated", "raw_score", "rawScores",
    "return_document", "returnDocuments", "max_length", "max_token_per_doc", "max_tokens_per_document",
)  # fmt: skip
KNOWN_FIELDS: Final = frozenset(_MEANT) | frozenset(_MISSPELT)
HEADER_FIELDS: Final = frozenset(
    {
        "x-request-timeout-ms",
        "x-envoy-expected-rq-timeout-ms",
        "x-cascade-fail-closed",
        "content-encoding",
        "authorization",
    }
)
_ASKS_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {})


def ignored_fields(body: Any, taken: Collection[str]) -> tuple[str, ...]:
    """Return the known names in a body that a dialect does not take and that ask for something, in fixed order.

    Names that nobody knows are not among them: they may be content.
    """
    if not isinstance(body, dict):
        return ()
    untaken = (name for name in (*_MEANT, *_MISSPELT) if name in body and name not in taken)
    return tuple(name for name in untaken if body[name] not in _ASKS_NOTHING)


def logged_field(field: str) -> str:
    """Return the part of an error's field that may be logged: a name of ours, never one that the caller made up."""
    name = field.partition(".")[0]
    return name if name in KNOWN_FIELDS | HEADER_FIELDS | {"body", "answer"} else "(unnamed)"
