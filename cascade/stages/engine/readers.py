"""Read texts and pairs with a tokenizer from its file (extra ``embedded``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError, lacks_extra
from cascade.policy.stage_specs import Windows
from cascade.stages.engine.template import PairTemplate, ids_of, kept_of, measured_template
from cascade.stages.engine.token_cache import Side, TokenCache
from cascade.stages.engine.tokens import Reading, Tokens
from cascade.stages.engine.windows import window_starts
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    import tokenizers

__all__ = ["JointReader", "PairReader", "TextReader", "pair_reader", "text_reader"]


class TextReader:
    """Read one text at a time, cut to ``max_length`` ids; for models that read queries and documents apart."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._most_characters = max_length * MOST_CHARACTERS_PER_TOKEN

    def query(self, text: str) -> None:
        """Return None: documents share nothing."""

    def read(self, query: None, document: str) -> Reading:
        """Return the input of a text."""
        (encoding,) = self._tokenizer.encode_batch_fast([document[: self._most_characters]])
        return _reading(encoding)


class JointReader:
    """Read pairs whole, cut to ``max_length`` ids, the longer side first; for tokenizers that do more than join sides."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._most_characters = max_length * MOST_CHARACTERS_PER_TOKEN

    @property
    def vocabulary(self) -> int:
        """Return how many token ids there are."""
        return self._tokenizer.get_vocab_size()

    def query(self, text: str) -> str:
        """Return what is read of the text."""
        return text[: self._most_characters]

    def read(self, query: str, document: str) -> Reading:
        """Return the input of a pair."""
        (encoding,) = self._tokenizer.encode_batch_fast([(query, document[: self._most_characters])])
        return _reading(encoding)


class PairReader:
    """Read the sides of pairs apart and join them: a query once a round, a document once while its ids are kept.

    Each pair is cut to ``max_length`` ids, the longer side first. With ``windows`` the query is cut as it would be
    without them, and a document longer than what that leaves is read in several inputs.
    """

    def __init__(
        self,
        sides: tokenizers.Tokenizer,
        template: PairTemplate,
        *,
        max_length: int,
        windows: Windows | None,
        cached_bytes: int,
    ) -> None:
        self._sides = sides
        self._template = template
        self._room = max_length - template.special
        self._windows = windows
        inputs = 1 if windows is None else windows.most
        self._most_characters = max_length * MOST_CHARACTERS_PER_TOKEN
        self._most_document_characters = self._most_characters * inputs
        self._most_document_ids = self._room * inputs
        self._cache = TokenCache(cached_bytes) if cached_bytes else None

    @property
    def vocabulary(self) -> int:
        """Return how many token ids there are."""
        return self._sides.get_vocab_size()

    def query(self, text: str) -> npt.NDArray[np.int32]:
        """Return the ids of a query."""
        return ids_of(self._sides, text[: self._most_characters])

    def read(self, query: npt.NDArray[np.int32], document: str) -> Reading:
        """Return the inputs of a pair."""
        ids, length = self._side(document[: self._most_document_characters])
        for_query, for_document = kept_of(len(query), length, self._room)
        kept = query[:for_query]
        starts = window_starts(length, for_document, self._windows)
        inputs = [self._template.join(kept, ids[start : start + for_document]) for start in starts]
        return Reading(
            inputs,
            truncated=len(kept) < len(query) or starts[-1] + for_document < length,
            whole=len(query) + length + self._template.special,
            query=len(query),
        )

    def _side(self, text: str) -> Side:
        if self._cache is None:
            return self._tokenized(text)
        key = TokenCache.key(text)
        side = self._cache.get(key)
        if side is None:
            side = self._tokenized(text)
            self._cache.put(key, side)
        return side

    def _tokenized(self, text: str) -> Side:
        ids = ids_of(self._sides, text)
        return Side(ids[: self._most_document_ids].copy(), len(ids))


def text_reader(file: Path, max_length: int) -> TextReader:
    """Return what reads single texts. Raises ConfigError where the file cannot be loaded, or does not read text."""
    reader = TextReader(_cutting(file, max_length), max_length)
    with _refused(f"weights: {file} cannot read text"):
        reader.read(None, "lamp")
    return reader


def pair_reader(
    file: Path, *, max_length: int, windows: Windows | None = None, cached_bytes: int = 0
) -> PairReader | JointReader:
    """Return what reads pairs: by their sides where the tokenizer joins them and does nothing more, else whole.

    Raises ConfigError where the file cannot be loaded, or where there are to be windows and pairs must be read whole.
    """
    joint = _cutting(file, max_length)
    sides = _loaded(file)
    sides.no_truncation()
    with _refused(f"weights: {file} cannot read text"):
        template = measured_template(joint, sides, max_length)
    if template is not None:
        return PairReader(sides, template, max_length=max_length, windows=windows, cached_bytes=cached_bytes)
    if windows is not None:
        raise ConfigError("windows: this tokenizer does more than join a query and a document, so it cannot be cut")
    return JointReader(joint, max_length)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Make a ConfigError of what the library raises: no type of its own, and where it panics not even an Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - else a file that makes it panic ends more than its own load
        raise ConfigError(f"{what}: {type(error).__name__}") from None


def _cutting(file: Path, max_length: int) -> tokenizers.Tokenizer:
    tokenizer = _loaded(file)
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    return tokenizer


def _loaded(file: Path) -> tokenizers.Tokenizer:
    try:
        import tokenizers
    except ImportError:
        raise lacks_extra("embedded stages need", "embedded") from None
    # threads of its own for one text at a time would only take the cores from ours; who set it means it
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with _refused(f"weights: {file} cannot be loaded"):
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    return tokenizer


def _reading(encoding: tokenizers.Encoding) -> Reading:
    tokens = Tokens(np.array(encoding.ids, dtype=np.int64), np.array(encoding.type_ids, dtype=np.int64))
    return Reading([tokens], truncated=bool(encoding.overflowing))
