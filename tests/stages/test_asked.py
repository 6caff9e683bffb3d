"""What a stage learns of the rounds that it is asked for."""

from __future__ import annotations

import asyncio

import pytest

from cascade.errors import StageTimeout
from cascade.guard.deadline import Deadline
from cascade.guard.expected_ms import Fit
from cascade.stages.asked import ask
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text


@pytest.mark.parametrize(("code", "expected_ms"), [("no_time", 90.0), ("deadline", 4.5)])
def test_a_round_that_is_given_up_before_its_time_is_over_is_not_taken_for_a_quick_one(
    code: str, expected_ms: float
) -> None:
    """What has no time even to begin would have taken all of it; what was begun, as long as it was waited for."""

    async def run() -> None:
        clock = asyncio.get_running_loop().time
        fault = StageTimeout("small", code, elapsed_ms=5.0, budget_ms=100.0)
        stage = ScriptedStage(lambda query, text: 0.0, delay_ms=5.0, fails=fault)
        for _ in range(10):
            with pytest.raises(StageTimeout):
                await ask(
                    stage,
                    Text("q"),
                    [Text("d")],
                    tokens=1000,
                    fit=Fit.FITS,
                    deadline=Deadline.after_ms(100.0, clock),
                    call_id="c",
                    instruction=None,
                    clock=clock,
                )
        assert stage.expected.p90_ms(1000) == pytest.approx(expected_ms)

    run_virtual(run())
