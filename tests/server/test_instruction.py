"""The caller's instruction: passed on where the stages take one, refused where they do not."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from tests.server.sidecar import BODIES, ROUTES, sidecar


class _Listening(ScriptedStage):
    """Take instructions, and keep them."""

    def __init__(self) -> None:
        ScriptedStage.__init__(self, overlap, takes_instruction=True)
        self.told: list[str | None] = []

    async def score(self, *args: Any, **kwargs: Any) -> Any:
        text = kwargs["instruction"]
        self.told.append(text.reveal() if text is not None else None)
        return await ScriptedStage.score(self, *args, **kwargs)


_SPELLINGS = [
    ("native", "instruction"),
    ("vllm", "instruction"),
    ("vllm", "instruct"),
    ("vllm-score", "instruction"),
    ("vllm-score", "instruct"),
]


@pytest.mark.parametrize(("dialect", "field"), _SPELLINGS)
async def test_both_stages_get_the_instruction(dialect: str, field: str) -> None:
    """Whatever it is called, each stage's round is told the caller's own words."""
    for path in ROUTES[dialect]:
        small, large = _Listening(), _Listening()
        response = await sidecar(small, large).post(path, {**BODIES[dialect]("q", ["a", "b"]), field: "find birds"})
        assert response.status_code == 200
        assert small.told == large.told == ["find birds"]


@pytest.mark.parametrize(("dialect", "field"), _SPELLINGS)
async def test_one_stage_that_takes_none_refuses_it_by_name(dialect: str, field: str) -> None:
    """An order that followed it only in part would not be the one asked for."""
    body = {**BODIES[dialect]("q", ["a"]), field: "find birds"}
    response = await sidecar(_Listening(), ScriptedStage(overlap)).post(ROUTES[dialect][0], body)
    assert response.status_code == (422 if dialect == "native" else 400)
    assert response.json()["message"] == f"{field}: this release's stages take no instruction"


async def test_no_instruction_is_told_as_none() -> None:
    """A request without one leaves the stages their own."""
    small, large = _Listening(), _Listening()
    await sidecar(small, large).post("/rerank", BODIES["tei"]("q", ["a"]))
    assert small.told == large.told == [None]
