"""Probing the stages of a running service."""

from __future__ import annotations

import asyncio
import io

import orjson

from cascade.errors import StageUnreachable
from cascade.server.probing import probe_stages
from cascade.stages.probe import Verdict
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.types import StageName
from tests.logs import logging_given_back
from tests.server.sidecar import sidecar


def _relevant(query: str, text: str) -> float:
    return 5.0 if "Paris" in text else -float(len(text))


def test_a_stage_is_probed_until_it_answers_and_once_only() -> None:
    """A stage that is down at first is asked again, later and later; a sound one is told of in the status, not logged."""

    async def play() -> None:
        small, large = ScriptedStage(_relevant), ScriptedStage(_relevant, fails=StageUnreachable)
        service = sidecar(small, large).service
        release = service.traffic.stable
        probing = asyncio.create_task(probe_stages(release, service.clock))
        await asyncio.sleep(20)
        assert release.probes[StageName.SMALL].verdict is Verdict.OK
        assert release.probes[StageName.LARGE].verdict is Verdict.FAILED
        large.fails = None
        await asyncio.sleep(60)
        assert release.probes[StageName.LARGE].verdict is Verdict.OK
        assert probing.done()
        assert len(small.calls) == 1

    with logging_given_back():
        log = io.BytesIO()
        configure_logging("info", log)
        run_virtual(play())
    told = [orjson.loads(line) for line in log.getvalue().splitlines()]
    assert {(line["event"], line["stage"], line["verdict"]) for line in told} == {("stage probe", "large", "failed")}


def test_a_stage_that_scores_wrong_is_logged_and_serves_all_the_same() -> None:
    """A wrong order is a warning with the verdict."""

    async def play() -> None:
        stage = ScriptedStage(lambda query, text: -_relevant(query, text))
        served = sidecar(stage, stage)
        release = served.service.traffic.stable
        await probe_stages(release, served.service.clock)
        assert release.probes[StageName.LARGE].verdict is Verdict.WRONG_ORDER
        assert (await served.post("/rerank", {"query": "q", "texts": ["a", "b"]})).status_code == 200

    with logging_given_back():
        log = io.BytesIO()
        configure_logging("info", log)
        asyncio.run(play())
    assert b'"verdict":"wrong_order"' in log.getvalue()
