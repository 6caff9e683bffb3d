"""A stage whose scores are kept: what was scored before is not sent again."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.cache.cached_round import CachedRound
from cascade.cache.key import QueryKeys, identity_of
from cascade.cache.score_cache import ScoreCache
from cascade.errors import NO_TIME, StageTooLate
from cascade.guard.deadline import Deadline
from cascade.guard.expected_ms import ExpectedMs, Fit
from cascade.guard.tenant import asker
from cascade.guard.token_size import pair_tokens
from cascade.policy.stage_specs import StageBase
from cascade.stages.around import Around
from cascade.stages.asked import ask
from cascade.stages.base import Observed, Stage
from cascade.stages.serializers import serializer
from cascade.text import Text
from cascade.types import Arm, StageName, StageScores

__all__ = ["CachedStage"]


class CachedStage(Around):
    """Score at another stage what is not kept, and keep what it scores.

    A round of what is missing counts whole or not at all, and with it the round. Where nothing is missing nothing
    leaves, whatever the server's breaker says. Scores are kept of rounds that counted, of documents that were scored
    as they are, while the server is known to be what it said and what the release declares; where that is not known,
    a round is answered all from what is kept, or all by the server.

    ``arm`` is whose requests it scores. What is scored in the shadow reads what is kept and is told apart; it keeps
    nothing, since it must push out nothing of the traffic's, and shares no round, since its rounds are the first to be
    given up. Raises ConfigError for a serializer that does not exist.
    """

    def __init__(self, inner: Stage, spec: StageBase, cache: ScoreCache, name: StageName, arm: Arm) -> None:
        super().__init__(inner)
        self.inner = inner
        self.expected: ExpectedMs = _JudgedLater(cache.clock)
        self._spec = spec
        self._cache = cache
        self._name = name
        self._arm = arm
        self._serializer = serializer(spec.serializer)
        self._identity: tuple[Observed | None, bytes | None] = (None, self._identify(None))

    def aside(self, inner: Stage) -> CachedStage:
        """Return what stands around ``inner``, another way to the same stage, for the shadow."""
        return CachedStage(inner, self._spec, self._cache, self._name, Arm.SHADOW)

    def identity(self) -> bytes | None:
        """Return what the scores of this moment depend on, None where the server is not what is declared."""
        observed = self._inner.observed
        if observed != self._identity[0]:
            self._identity = observed, self._identify(observed)
        return self._identity[1]

    def _identify(self, observed: Observed | None) -> bytes | None:
        if observed is not None and not self._cache.is_as_declared(self._spec, observed):
            return None
        return identity_of(self._spec, self._inner.fingerprint, observed)

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        async def send(texts: Sequence[Text], call_id: str) -> StageScores:
            return await self._ask(query, texts, deadline=deadline, call_id=call_id, instruction=instruction)

        identity = self.identity()
        keys = self._keys(identity, query, instruction)
        there = {position: text for position, text in enumerate(documents) if not text.is_blank}
        if keys is None or not there:
            return await send(documents, call_id)
        texts, whole = list(there.values()), self._inner.is_listwise
        made = keys.of_list(texts) if whole else keys.of_pairs(texts)
        round_ = CachedRound(
            self._cache,
            self._name,
            self._arm,
            deadline,
            send,
            call_id,
            expected_ms=lambda texts: self._inner.expected.p90_ms(self._tokens(query, texts)),
            is_known=lambda: self._is_known(identity),
        )
        return await round_.score(dict(zip(there, made, strict=True)), there, count=len(documents), whole=whole)

    def _is_known(self, identity: bytes | None) -> bool:
        """Tell whether what scores is known to be what ``identity`` says."""
        return self._inner.is_identified and self.identity() == identity

    def _keys(self, identity: bytes | None, query: Text, instruction: Text | None) -> QueryKeys | None:
        """Return what makes the keys of a query, None where nothing may be shared."""
        who = asker()
        if identity is None or who is None:
            return None
        observed, fingerprint = self._inner.observed, self._inner.fingerprint
        told = None if observed is None else observed.max_length
        return self._cache.keys.of_query(
            identity,
            self._serializer,
            query,
            tenant=who.tenant,
            instruction=fingerprint.instruction if instruction is None else instruction.reveal(),
            max_length=min(fingerprint.max_length, told or fingerprint.max_length),
        )

    def _tokens(self, query: Text, documents: Sequence[Text]) -> int:
        return pair_tokens(query, documents, self._inner.fingerprint.max_length)

    async def _ask(
        self, query: Text, documents: Sequence[Text], *, deadline: Deadline, call_id: str, instruction: Text | None
    ) -> StageScores:
        """Have the stage inside score documents, where what is left of the time is enough for so many tokens."""
        inner = self._inner
        tokens = self._tokens(query, documents)
        budget_ms = deadline.remaining_ms()
        fit = inner.expected.judge(tokens, budget_ms)
        if fit is Fit.TOO_LONG:
            raise StageTooLate(self._name, NO_TIME, elapsed_ms=0.0, budget_ms=budget_ms)
        return await ask(
            inner,
            query,
            documents,
            tokens=tokens,
            fit=fit,
            deadline=deadline,
            call_id=call_id,
            instruction=instruction,
            clock=self._cache.clock,
        )


class _JudgedLater(ExpectedMs):
    """Let every round begin, and learn nothing: only what is not kept takes the stage's time, and is judged by it."""

    def judge(self, tokens: int, remaining_ms: float) -> Fit:
        return Fit.FITS

    def ended(self, tokens: int, ms: float, fit: Fit) -> None:
        """Learn nothing."""

    def gave_up(self, tokens: int, ms: float, fit: Fit, *, waited_ms: float = 0.0) -> None:
        """Learn nothing."""
