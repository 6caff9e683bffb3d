"""How much may be under way at a server, found out from how it answers."""

from __future__ import annotations

import math
from typing import Final

from cascade.guard.token_size import size_of

__all__ = ["AdaptiveLimit"]

_FIRST_CALLS: Final = 10.0
_TOLERANCE: Final = 1.5
_SPARE_CALLS: Final = 2.0
_NEARLY_LATE: Final = 0.7
_SMOOTHING: Final = 0.2
_LONG_WEIGHT: Final = 2 / 601
_TOO_LONG_AGO: Final = 2.0
_RECALL: Final = 0.95
_BACKOFF: Final = 0.9
_MOST_BACKOFF: Final = 0.5
_SIZE_WEIGHT: Final = 0.05


class AdaptiveLimit:
    """Bound texts and tokens in flight by whether a server still answers as fast as it used to.

    This is Gradient2 of methods.md 7.1: ``limit <- 0.8 limit + 0.2 (limit * g + spare)`` with ``g = 1.5 * usual /
    now`` between 0.5 and 1, where ``usual`` is the long average of the time of a call of its size. Two things are
    ours: the spare is 2 calls, not 4, since a call is a batch of texts, and there is no floor of 20. The limit is
    kept in calls of the usual size and told in texts and in tokens, so that long documents fill it sooner. What got no
    room or no answer in time cuts it by a tenth, and what stood in the server's queue for too long to what the server
    answered meanwhile, at most by half (as TCP does); once for all calls that were under way then.

    It grows only while it is used, and not while the server is ``pressed`` by what it tells of itself. Nor where a call
    took most of the time that it had beside others: under steady overload the usual time follows the queue that the limit
    itself lets stand, and would do so until calls are late, and what those cut short is lost.
    """

    def __init__(self, *, most_texts: int, most_tokens: int, call_texts: int, call_tokens: int) -> None:
        self.most_texts = most_texts
        self.most_tokens = most_tokens
        self._calls = _FIRST_CALLS
        self._texts_a_call = float(call_texts)
        self._tokens_a_call = float(call_tokens)
        self._answers = 0
        self._usual_ms: dict[int, float] = {}
        self._cut_at = -math.inf

    @property
    def texts(self) -> int:
        """Return the most texts in flight."""
        return max(1, min(self.most_texts, int(self._calls * self._texts_a_call)))

    @property
    def tokens(self) -> int:
        """Return the most tokens in flight."""
        return max(1, min(self.most_tokens, int(self._calls * self._tokens_a_call)))

    def answered(
        self, *, texts: int, tokens: int, ms: float, in_flight: int, pressed: bool = False, had_ms: float = math.inf
    ) -> None:
        """Learn from a call that was answered after ``ms`` of the ``had_ms`` that its round had when it asked for room.

        ``in_flight`` counts the texts under way with it.
        """
        self._answers += 1
        weight = max(_SIZE_WEIGHT, 1 / self._answers)  # the first tells more than what was assumed
        self._texts_a_call += weight * (texts - self._texts_a_call)
        self._tokens_a_call += weight * (tokens - self._tokens_a_call)
        usual_ms = self._learn(tokens, max(ms, 1e-3))
        if in_flight * 2 < self.texts:
            return
        gradient = min(1.0, max(0.5, _TOLERANCE * usual_ms / max(ms, 1e-3)))
        calls = (1 - _SMOOTHING) * self._calls + _SMOOTHING * (self._calls * gradient + _SPARE_CALLS)
        nearly_late = in_flight > texts and ms > _NEARLY_LATE * had_ms
        if calls < self._calls or not (pressed or nearly_late):
            most = max(self.most_texts / self._texts_a_call, 1.0)
            self._calls = min(max(calls, 1.0), most)

    def is_slow(self, *, tokens: int, ms: float) -> bool:
        """Tell whether so long is more than a call of its size may take before the limit falls."""
        usual_ms = self._usual_ms.get(size_of(tokens))
        return usual_ms is None or ms > _TOLERANCE * usual_ms

    def dropped(self, began: float, now: float, carried_texts: int | None = None) -> None:
        """Cut the limit for a call that got no room, or no answer in time; one that began before the last cut was counted.

        ``carried_texts`` is what the server answered while the call stood in its queue, None where it did not.
        """
        if began < self._cut_at:
            return
        cut = self._calls * _BACKOFF
        if carried_texts is not None:
            cut = min(cut, max(self._calls * _MOST_BACKOFF, carried_texts / self._texts_a_call))
        self._calls = max(1.0, cut)
        self._cut_at = now

    def _learn(self, tokens: int, ms: float) -> float:
        size = size_of(tokens)
        usual_ms = self._usual_ms.get(size)
        usual_ms = ms if usual_ms is None else usual_ms + _LONG_WEIGHT * (ms - usual_ms)
        if usual_ms > _TOO_LONG_AGO * ms:  # it has become faster: do not wait for the average to find out
            usual_ms *= _RECALL
        self._usual_ms[size] = usual_ms
        return usual_ms
