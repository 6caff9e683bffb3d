"""What a cached stage learns of how long rounds take, and what it judges by that."""

from __future__ import annotations

import pytest

from cascade.errors import (
    StageTimeout,
    StageTooLate,
)
from cascade.guard.expected_ms import ExpectedMs, Fit
from cascade.guard.token_size import pair_tokens
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from tests.cache.arrange import arranged, by_length, texts


def test_hits_teach_nothing_of_how_long_rounds_take() -> None:
    """Only what is sent is judged and learnt, by the tokens that are sent."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=100))
        for number in range(10):
            await stage.score("a" * 40 + str(number))
        tokens = pair_tokens(Text("q"), texts("a" * 41), 512)
        assert stage.inner.expected.p90_ms(tokens) == pytest.approx(100)
        for _ in range(50):
            await stage.score(*("a" * 40 + str(number) for number in range(10)))
        assert stage.inner.expected.p90_ms(tokens) == pytest.approx(100)
        assert stage.inner.expected.p90_ms(10 * tokens) != pytest.approx(0)
        assert len(stage.sent) == 10

    run_virtual(run())


def test_a_round_is_judged_by_what_is_missing_of_it() -> None:
    """Where the time is too short for what is missing nothing leaves; where it is enough the kept rest costs none."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=1))
        clock = stage.cache.clock
        stage.inner.expected = ExpectedMs(clock)
        few = pair_tokens(Text("q"), texts("a" * 40), 512)
        for _ in range(10):
            stage.inner.expected.ended(few, 20.0, Fit.FITS)
            stage.inner.expected.ended(20 * few, 400.0, Fit.FITS)
        many = ["a" * 39 + chr(97 + number) for number in range(20)]
        await stage.score(*many[:19])
        assert (await stage.score(*many, within_ms=100)).cost.cached == 19
        others = ["b" * 39 + chr(97 + number) for number in range(20)]
        assert stage.stage.expected.judge(20 * few, 100) is Fit.FITS
        stage.inner.expected.judge(20 * few, 100)  # the first that does not fit is made as a probe
        with pytest.raises(StageTooLate, match="no_time") as raised:
            await stage.score(*others, within_ms=100)
        assert raised.value.sent == 0
        assert len(stage.sent) == 2

    run_virtual(run())


def test_a_round_that_takes_too_long_is_learnt_from() -> None:
    """As without a cache: what was sent had not come back in time."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=1000))
        for number in range(10):
            with pytest.raises(StageTimeout):
                await stage.score("a" * 40 + str(number), within_ms=100)
        tokens = pair_tokens(Text("q"), texts("a" * 41), 512)
        assert stage.inner.expected.p90_ms(tokens) == pytest.approx(90)

    run_virtual(run())
