"""How a tokenizer joins a query and a document: measured, so that each side can be tokenised by itself and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from cascade.stages.engine.tokens import Tokens

if TYPE_CHECKING:
    import tokenizers

__all__ = ["PairTemplate", "ids_of", "kept_of", "measured_template"]

_LONG: Final = "the keeper trims the lamp at dusk, and writes the hour in the log. " * 40
_PROBES: Final = (
    ("lamp", "log"),
    ("How is a lighthouse kept?", "The keeper trims the lamp; at dusk (as every evening) he writes: 23:05."),
    ("  edges of white space  ", "\n\ta tab and a line\n"),
    ("", "nothing on one side"),
    ("nothing on the other", ""),
    ("ﬁne ligatures, cafe\u0301 and café", "naïve Ünïcode — “quotes” … №5 ½"),
    ("灯台は誰が守るのか", "灯台の番人が毎晩灯りをともす。Leuchtturmwärter 등대지기 маяк منارة"),
    ("emoji 🗼👩‍🚒", "a\u200bzero width, a\u00a0hard space, and a\u00adsoft hyphen"),
    ("[SEP] </s> <mask> [UNK]", "special words [CLS] in <s> the text"),
    ("word", _LONG),
    (_LONG, "word"),
    (_LONG, _LONG),
)
"""Scripts, punctuation, blank edges, words that are special tokens, and pairs that are cut on either side."""
_ENOUGH: Final = 12
"""Characters of a long probe for each token that a pair may have: far more than is kept. What tokenizers cut off they keep too,
and of two long sides in as many pieces as the square of that."""
_SHORT: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class PairTemplate:
    """The ids around two sides, each (n,), with their segment ids; ``segments`` are those of the sides themselves."""

    before: Tokens
    between: Tokens
    after: Tokens
    segments: tuple[int, int]

    @property
    def special(self) -> int:
        """Return how many ids stand around a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, query: npt.NDArray[np.int32], document: npt.NDArray[np.int32]) -> Tokens:
        """Return the input of a pair from the ids of its sides, which fit."""
        ids = np.concatenate((self.before.ids, query, self.between.ids, document, self.after.ids), dtype=np.int64)
        types = np.empty(len(ids), dtype=np.int64)
        first = len(self.before) + len(query)
        second = first + len(self.between) + len(document)
        types[: len(self.before)] = self.before.type_ids
        types[len(self.before) : first] = self.segments[0]
        types[first : first + len(self.between)] = self.between.type_ids
        types[first + len(self.between) : second] = self.segments[1]
        types[second:] = self.after.type_ids
        return Tokens(ids, types)


def ids_of(tokenizer: tokenizers.Tokenizer, text: str) -> npt.NDArray[np.int32]:
    """Return the ids of a text alone, without special tokens around it.

    Of the tokenizer's calls, those for batches alone let other threads run meanwhile.
    """
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return np.array(encoding.ids, dtype=np.int32)


def kept_of(query: int, document: int, room: int) -> tuple[int, int]:
    """Return how many ids each side keeps where both may have ``room``: the longer is cut first.

    As the ``longest_first`` of tokenizers has it: where neither side is within half of the room, both get half, and
    the document what is odd.
    """
    if query + document <= room:
        return query, document
    shorter = min(query, document)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room - room // 2
    return (shorter, longer) if query <= document else (longer, shorter)


def measured_template(joint: tokenizers.Tokenizer, sides: tokenizers.Tokenizer, max_length: int) -> PairTemplate | None:
    """Return how ``joint``, which cuts pairs to ``max_length``, joins sides; None where it does more than to join them.

    ``sides`` is the same tokenizer without truncation. That it joins is not assumed of any kind of tokenizer: fixed
    pairs must come out with the same ids and segment ids both ways.
    """
    template = _read_off(joint)
    if template is None or template.special >= max_length:
        return None
    room = max_length - template.special
    most = max(_SHORT, _ENOUGH * max_length)
    for query, document in ((query[:most], document[:most]) for query, document in _PROBES):
        whole = joint.encode(query, document)
        first, second = ids_of(sides, query), ids_of(sides, document)
        kept = kept_of(len(first), len(second), room)
        joined = template.join(first[: kept[0]], second[: kept[1]])
        same = joined.ids.tolist() == whole.ids and joined.type_ids.tolist() == whole.type_ids
        if not same or not all(whole.attention_mask):
            return None
    return template


def _read_off(joint: tokenizers.Tokenizer) -> PairTemplate | None:
    """Read off the ids that stand around the sides of one pair; None where a side is not in one piece."""
    whole = joint.encode(*_PROBES[0])
    sides = whole.sequence_ids
    places = [[place for place, side in enumerate(sides) if side == number] for number in (0, 1)]
    if not all(places) or any(found != list(range(found[0], found[-1] + 1)) for found in places):
        return None
    (first, *_), (second, *_) = places
    end_of_first, end_of_second = places[0][-1] + 1, places[1][-1] + 1
    if end_of_first > second:
        return None
    ids, types = np.array(whole.ids, dtype=np.int64), np.array(whole.type_ids, dtype=np.int64)

    def part(begin: int, end: int) -> Tokens:
        return Tokens(ids[begin:end], types[begin:end])

    return PairTemplate(
        before=part(0, first),
        between=part(end_of_first, second),
        after=part(end_of_second, len(ids)),
        segments=(int(types[first]), int(types[second])),
    )
