"""The prompt that asks a language model to order a list, and what keeps a text from being read as a part of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

__all__ = ["ListForm", "inert"]

_OPENING: Final = "[\uff3b\ufe47\u2045\u27e6\u298b\u298d\u298f\u2e55\u2e57\u301a\u3010\u3016\ufe17\ufe3b\u3014\u3018\u2772\u27ec\u2997\ufe39\ufe5d"
_CLOSING: Final = "]\uff3d\ufe48\u2046\u27e7\u298c\u298e\u2990\u2e56\u2e58\u301b\u3011\u3017\ufe18\ufe3c\u3015\u3019\u2773\u27ed\u2998\ufe3a\ufe5e"
"""Square brackets of any width and direction, those with a stroke or a tick, and lenticular and tortoise-shell ones."""
_LESS_THAN: Final = "\uff1c\ufe64"
_BRACKETS: Final = str.maketrans(
    {**dict.fromkeys(_OPENING, "("), **dict.fromkeys(_CLOSING, ")"), **dict.fromkeys(_LESS_THAN, "<")}
)
_OPENS: Final = re.compile(r"<(?=\S)")


def inert(text: str) -> str:
    """Return a text, of one line, that holds neither a passage's number nor a control word of a chat template.

    Numbers stand in square brackets at the head of a line, so these, and what a tokenizer or a model may take for them,
    become round ones: so do control words like ``[INST]``. Others begin
    with ``<`` and something close behind it (``<|im_end|>``, ``</s>``, ``<think>``), so a space is put between the two. A
    text that is inert already is returned as it is.
    """
    return _OPENS.sub("< ", text.translate(_BRACKETS))


@dataclass(frozen=True, slots=True)
class ListForm:
    """What stands around instruction, query and passages: the beginning is the same for every list, and so is worth caching.

    ``system`` comes first, then what the serializer writes of instruction and query, then the passages, each on a line of
    its own behind its number in square brackets, and at the end what is asked for, ``ending`` or ``ending_json``.
    """

    system: str
    ending: str
    ending_json: str

    def messages(self, query: bytes, passages: Sequence[bytes], *, as_json: bool) -> bytes:
        """Return the chat's messages as JSON, of a query and passages that are JSON strings already; numbers begin at one."""
        numbered = b"".join(b"[%d] %b" % (number, passage[1:-1]) for number, passage in enumerate(passages, 1))
        asked = orjson.dumps(self.ending_json if as_json else self.ending)
        return (
            b'[{"role":"system","content":'
            + orjson.dumps(self.system)
            + b'},{"role":"user","content":"'
            + query[1:-1]
            + numbered
            + asked[1:-1]
            + b'"}]'
        )

    @property
    def fixed(self) -> str:
        """Return what is the same in every prompt, to be counted."""
        return self.system + self.ending
