"""Serializers: how query and document text become a model's input. Versioned, and hashed into the fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import Final

from cascade.errors import ConfigError

__all__ = ["Serializer", "serializer"]


@dataclass(frozen=True, slots=True)
class Serializer:
    """Put fixed text around query and document.

    Prefix and suffix are joined, never substituted into: no document can change a template.
    With ``single_line`` every run of white space becomes one space first.
    """

    name: str
    query_prefix: str = ""
    query_suffix: str = ""
    document_prefix: str = ""
    document_suffix: str = ""
    single_line: bool = False

    @property
    def sha256(self) -> str:
        """Return the digest of everything that the serializer does."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()

    def query(self, text: str) -> str:
        """Return the query as the model reads it."""
        return self.query_prefix + self._flat(text) + self.query_suffix

    def document(self, text: str) -> str:
        """Return a document as the model reads it."""
        return self.document_prefix + self._flat(text) + self.document_suffix

    def _flat(self, text: str) -> str:
        return " ".join(text.split()) if self.single_line else text


_KNOWN: Final = {
    known.name: known for known in (Serializer("passthrough@1"), Serializer("single-line@1", single_line=True))
}


def serializer(name: str) -> Serializer:
    """Return the serializer of a name such as ``passthrough@1``. Raises ConfigError for an unknown one."""
    try:
        return _KNOWN[name]
    except KeyError:
        raise ConfigError(f"serializer {name!r} is unknown; known are {', '.join(sorted(_KNOWN))}") from None
