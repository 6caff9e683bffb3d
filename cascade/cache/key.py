"""What a score is kept under: a keyed hash of everything that it depends on. The only place that makes keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Final

import orjson

from cascade.policy.stage_specs import StageBase
from cascade.stages.base import Observed
from cascade.stages.serializers import Serializer
from cascade.text import Text
from cascade.types import Fingerprint

__all__ = ["KEY_BYTES", "KeyMaker", "QueryKeys", "identity_of"]

KEY_BYTES: Final = 16
_FORMAT: Final = 1
"""Counted up where the meaning of a key or of a kept value changes."""
_PERSON: Final = b"cascade-pair"
_PAIR, _LIST = b"\0", b"\1"
_NEVER_CUT: Final = 1000
"""A text of so many characters is sent whole by every adapter, where the longest pair leaves room for it."""
_HOW_IT_IS_REACHED: Final = frozenset(
    {
        "auth",
        "ca_bundle",
        "client_certificate",
        "connect_ms",
        "max_in_flight_texts",
        "max_in_flight_tokens",
        "adaptive_limit",
        "retries",
        "retry_share",
        "breaker",
        "attention",
    }
)
"""Fields of a stage that say nothing of its scores. All others count, those that are yet to come too."""


def identity_of(spec: StageBase, fingerprint: Fingerprint, observed: Observed | None) -> bytes:
    """Return what the scores of a stage depend on, besides the pair: what is declared of it, and what its server says.

    Its address counts: another server under the same name may be another model.
    """
    said = observed or Observed()
    return orjson.dumps(
        {
            "format": _FORMAT,
            "fingerprint": asdict(fingerprint),
            "declared": spec.model_dump(mode="json", exclude=set(_HOW_IT_IS_REACHED)),
            "said": [said.model, said.revision, said.dtype, said.version, said.max_length, said.weights_sha256],
        },
        option=orjson.OPT_SORT_KEYS,
    )


class KeyMaker:
    """Make keys with a secret of 16 to 64 bytes: without it none can be guessed, nor told what it is of."""

    def __init__(self, secret: bytes) -> None:
        self._start = blake2b(digest_size=KEY_BYTES, key=secret, person=_PERSON)

    def of_query(
        self,
        identity: bytes,
        serializer: Serializer,
        query: Text,
        *,
        tenant: str | None,
        instruction: str | None,
        max_length: int,
    ) -> QueryKeys:
        """Return what makes the keys of one query's documents at one stage.

        ``query`` is as it leaves for the stage, so what a request's own limits cut off counts. ``max_length`` is that
        of the stage and its server.
        """
        state = self._start.copy()
        for part in (identity, _optional(tenant), _optional(instruction), _read(query, max_length, serializer)):
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
        return QueryKeys(state, serializer, max_length)


class QueryKeys:
    """Make the keys of one query's documents: about a microsecond each."""

    __slots__ = ("_max_length", "_serializer", "_state")

    def __init__(self, state: blake2b, serializer: Serializer, max_length: int) -> None:
        self._state = state
        self._serializer = serializer
        self._max_length = max_length

    def of_pairs(self, documents: Sequence[Text]) -> list[bytes]:
        """Return one key a document; equal documents have equal ones."""
        start = self._state.copy()
        start.update(_PAIR)
        return [self._key(start, document) for document in documents]

    def of_list(self, documents: Sequence[Text]) -> list[bytes]:
        """Return one key a place of the list, each depending on all documents and their order."""
        whole = self._state.copy()
        whole.update(_LIST + len(documents).to_bytes(8, "little"))
        for document in documents:
            written = self._written(document)
            whole.update(len(written).to_bytes(8, "little"))
            whole.update(written)
        keys = []
        for place in range(len(documents)):
            state = whole.copy()
            state.update(place.to_bytes(8, "little"))
            keys.append(state.digest())
        return keys

    def _key(self, start: blake2b, document: Text) -> bytes:
        state = start.copy()
        state.update(self._written(document))
        return state.digest()

    def _written(self, document: Text) -> bytes:
        return _read(document, self._max_length, self._serializer)


def _read(text: Text, max_length: int, serializer: Serializer) -> bytes:
    """Return a text as far as the serializer makes others equal to it, and no further: else it stands as it is.

    What is long may be cut before it is serialized, so that white space in it counts.
    """
    whole = text.reveal()
    if serializer.single_line and len(whole) <= min(max_length // 2, _NEVER_CUT):
        return b"-" + _bytes(serializer.flat(whole))
    return b"=" + _bytes(whole)


def _optional(text: str | None) -> bytes:
    """Return None and the empty string as two things."""
    return b"" if text is None else b"=" + _bytes(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
