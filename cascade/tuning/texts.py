"""Make texts of given lengths in tokens out of neutral words, so that no text of the user is needed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from cascade.errors import ConfigError
from cascade.text import Text
from cascade.tuning.lengths import RequestLengths

__all__ = ["Words", "WrittenRequest"]

_WORDS: Final = (
    "the a of and in to was is for with as on at by from that which this one two three four five six seven eight nine ten "
    "water light house road river sea boat ship wood stone bread field tree rain wind snow sun moon star night day year hour "
    "week month time place name word book line page table door window wall floor room street town city country north south "
    "east west left right high low old new long short large small early late first last next many few more most other "
    "hand head foot eye voice work paper letter number part side end point way case form kind group system state "
    "red green blue white black grey brown warm cold dry wet deep wide slow fast open near far still even often"
)
_FEWEST: Final = 8
"""Fewer words than these would let a text repeat itself."""


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """A query and documents to score."""

    query: Text
    documents: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Words and how many tokens each has, behind a blank and for a given tokenizer."""

    words: tuple[str, ...]
    tokens: tuple[int, ...]

    @classmethod
    def counted_by(cls, count: Callable[[str], int], words: str = _WORDS) -> Self:
        """Choose words of one token each, or where there are too few of them, the shortest ones.

        ``count`` gives the tokens of a text without special ones. A word is counted in the middle of others, as it will
        stand. Raises ConfigError for a tokenizer that gives no word a token.
        """
        alone = count("a a")
        costs = {word: count(f"a {word} a") - alone for word in dict.fromkeys(words.split())}
        single = [word for word, tokens in costs.items() if tokens == 1]
        if len(single) >= _FEWEST:
            return cls(tuple(single), (1,) * len(single))
        kept = sorted((tokens, word) for word, tokens in costs.items() if tokens > 0)[: 2 * _FEWEST]
        if not kept:
            raise ConfigError("weights: the tokenizer gives words no tokens; no text can be made with it")
        return cls(tuple(word for _, word in kept), tuple(tokens for tokens, _ in kept))

    def text(self, tokens: int, draw: random.Random) -> str:
        """Return words of about so many tokens: exactly where words have one each, else short of a word at most."""
        if self.tokens == (1,) * len(self.words):
            return " ".join(draw.choices(self.words, k=max(1, tokens)))
        chosen: list[str] = []
        had = 0
        while True:
            place = draw.randrange(len(self.words))
            had += self.tokens[place]
            if chosen and had > tokens:
                return " ".join(chosen)
            chosen.append(self.words[place])

    def request(self, lengths: RequestLengths, draw: random.Random) -> WrittenRequest:
        """Return a request of these lengths, of new words."""
        documents = tuple(Text(self.text(tokens, draw)) for tokens in lengths.documents)
        return WrittenRequest(Text(self.text(lengths.query, draw)), documents)
