"""Serializers: how query and document text become a model's input. Versioned, and hashed into the fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Final

import orjson

from cascade.errors import ConfigError

__all__ = ["Serializer", "serializer"]


@dataclass(frozen=True, slots=True)
class Serializer:
    """Put fixed text around query and document.

    Prefix and suffix are joined, never substituted into. A model's control words in a document are not taken out.
    With ``single_line`` every run of white space becomes one space first. A serializer with an
    ``instruction`` owns the model's template: the instruction, the caller's or this default, stands
    between the query's prefix and ``after_instruction``, and the server must add no template of its own.
    """

    name: str
    query_prefix: str = ""
    query_suffix: str = ""
    document_prefix: str = ""
    document_suffix: str = ""
    single_line: bool = False
    instruction: str | None = None
    after_instruction: str = ""

    @property
    def sha256(self) -> str:
        """Return the digest of everything that the serializer does.

        Fields that stand at their default do not count, so that a new one changes no digest.
        """
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        counted = {item.name: told[item.name] for item in fields(self) if told[item.name] != item.default}
        return hashlib.sha256(orjson.dumps(counted, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def owns_template(self) -> bool:
        """Tell whether text stands around query or document that must not be cut."""
        return bool(self.query_prefix or self.query_suffix or self.document_prefix or self.document_suffix)

    def query(self, text: str, instruction: str | None = None) -> str:
        """Return the query as the model reads it."""
        told = "" if self.instruction is None else (instruction or self.instruction) + self.after_instruction
        return self.query_prefix + told + self.flat(text) + self.query_suffix

    def document(self, text: str) -> str:
        """Return a document as the model reads it."""
        return self.document_prefix + self.flat(text) + self.document_suffix

    def flat(self, text: str) -> str:
        """Return a text as it stands between what is put around it."""
        return " ".join(text.split()) if self.single_line else text


_QWEN3: Final = Serializer(
    "qwen3-reranker@1",
    query_prefix=(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: '
    ),
    query_suffix="\n",
    document_prefix="<Document>: ",
    document_suffix="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query",
    after_instruction="\n<Query>: ",
)
"""The prompt that the model card of Qwen3-Reranker gives."""

_KNOWN: Final = {
    known.name: known for known in (Serializer("passthrough@1"), Serializer("single-line@1", single_line=True), _QWEN3)
}


def serializer(name: str) -> Serializer:
    """Return the serializer of a name such as ``passthrough@1``. Raises ConfigError for an unknown one."""
    try:
        return _KNOWN[name]
    except KeyError:
        raise ConfigError(f"serializer {name!r} is unknown; known are {', '.join(sorted(_KNOWN))}") from None
