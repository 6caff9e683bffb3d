"""Tell queries of the same text apart from others, in a table that holds no text."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final

__all__ = ["TEXT_COLUMN", "text_digest"]

TEXT_COLUMN: Final = "q_text_sha256"
"""The query-level column of these digests."""
_LETTERS: Final = 16


def text_digest(text: str) -> str:
    """Return the head of the SHA-256 of a text: NFKC, case folded, white space as single spaces.

    It has no key: who has the table and guesses a query can tell that it is there.
    """
    normal = " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())
    return hashlib.sha256(normal.encode()).hexdigest()[:_LETTERS]
