"""What stands around a stage: it says what the stage says, and leaves starting and closing to whose it is."""

from __future__ import annotations

from cascade.guard.events import Guarded
from cascade.stages.base import Congestion, Observed, Stage
from cascade.types import Fingerprint, ScoreSpace

__all__ = ["Around"]


class Around:
    """Be like the stage inside in all but how it scores."""

    def __init__(self, inner: Stage) -> None:
        self._inner = inner

    @property
    def fingerprint(self) -> Fingerprint:
        return self._inner.fingerprint

    @property
    def space(self) -> ScoreSpace:
        return self._inner.space

    @property
    def observed(self) -> Observed | None:
        return self._inner.observed

    @property
    def unusable(self) -> str | None:
        return self._inner.unusable

    @property
    def congestion(self) -> Congestion | None:
        return self._inner.congestion

    @property
    def guarded(self) -> Guarded | None:
        return self._inner.guarded

    @property
    def takes_instruction(self) -> bool:
        return self._inner.takes_instruction

    @property
    def is_listwise(self) -> bool:
        return self._inner.is_listwise

    @property
    def is_identified(self) -> bool:
        return self._inner.is_identified

    async def start(self) -> None:
        """Do nothing: whose stage it is starts it."""

    async def look_again(self) -> bool:
        return await self._inner.look_again()

    async def returned(self) -> None:
        await self._inner.returned()

    async def aclose(self) -> None:
        """Do nothing: whose stage it is closes it."""
