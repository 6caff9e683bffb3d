"""A shadow beside the releases of a process: what it takes, what stops it, and that no user's metric knows of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from cascade.calibration.artefact import artefact_digest
from cascade.errors import ConfigError
from cascade.guard.seat import Asked, Bounds
from cascade.rollout.artefacts import Artefacts, artefact_name
from cascade.rollout.bundle import Bundle
from cascade.rollout.guardrails import Observed
from cascade.rollout.shadow import GoldQueries, Shadowing, parse_gold
from cascade.rollout.trial import Judge
from cascade.server.active import ActiveRelease
from cascade.server.shadowing import gold_of, shadowing
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import overlap
from cascade.text import Text
from cascade.types import Arm, Candidate, Request
from tests.server.releases import TEXTS, Models, another, bundled, served, stage_of
from tests.server.sidecar import LEVELS, Sidecar

_GOLD = orjson.dumps(
    {
        "format": "cascade-gold/1",
        "queries": [
            {"text": f"{word} dives", "documents": [{"text": word, "gain": 1}, {"text": "other", "gain": 0}]}
            for word in ("heron", "kingfisher", "gull")
        ],
    }
)
_REQUEST = Request(Text("the kingfisher dives"), tuple(Candidate(Text(text)) for text in TEXTS))


@dataclass
class _Controller:
    """Keep what a controller is told."""

    before: int = 0
    pairs: list[float] = field(default_factory=list)
    gold: list[float] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def pair_left_out(self, outcome: str) -> None:
        self.left_out.append(outcome)

    def observe_pair(self, loss: float) -> None:
        self.pairs.append(loss)

    def observe_gold(self, loss: float) -> None:
        self.gold.append(loss)

    def told(self) -> dict[str, Any]:
        return {"guardrails": [{"name": "late", "n": 7}, {"name": "gold_loss", "n": self.before}]}


def _models() -> Models:
    """Return models of which `worse` orders the other way round."""
    return Models(worse={"score_of": lambda query, text: -overlap(query, text), "delay_ms": 30.0})


async def _tried(sidecar: Sidecar, **fields: Any) -> ActiveRelease:
    rollout = {"shadow": {"share": 1.0}}
    fields = {"stages": {"small": stage_of("worse")}, "escalation": "none", "rollout": rollout} | fields
    candidate = await another(sidecar, **fields)
    sidecar.service.traffic.split(candidate, 0.0)
    return candidate


def _beside(
    sidecar: Sidecar, candidate: ActiveRelease, controller: _Controller, gold: GoldQueries | None = None
) -> Shadowing:
    judge = Judge(controller, lambda settled: Observed(settled.arm))  # type: ignore[arg-type]
    return shadowing(sidecar.service, sidecar.service.traffic.stable, candidate, judge, gold)


async def _ask(sidecar: Sidecar) -> bytes:
    answer = await sidecar.post("/rerank", {"query": "the kingfisher dives", "texts": TEXTS})
    assert answer.status_code == 200
    return answer.content


def _of_users(metrics: dict[str, float]) -> dict[str, float]:
    """Return all samples but those that a shadow is to change, and the times at which others and the process were made."""
    left_out = ("shadow", "_created", "cascade_start_time_seconds", "cascade_uptime_seconds")
    return {name: value for name, value in metrics.items() if not any(part in name for part in left_out)}


def test_h4_answers_and_users_metrics_are_as_they_are_without_a_shadow() -> None:
    """To the byte and to the sample, while every answer is scored beside by a worse release."""

    async def play(*, shadowed: bool) -> tuple[list[bytes], dict[str, float], dict[str, float], _Controller]:
        sidecar, controller = served(_models()), _Controller()
        candidate = await _tried(sidecar)
        beside = _beside(sidecar, candidate, controller) if shadowed else None
        answers = [await _ask(sidecar) for _ in range(5)]
        await asyncio.sleep(5.0)
        metrics = await sidecar.metrics()
        if beside is not None:
            await beside.aclose()
        await candidate.aclose()
        shadow = {name: value for name, value in metrics.items() if value and name.startswith("cascade_shadow_total")}
        return answers, _of_users(metrics), shadow, controller

    plain, before, nothing, _ = run_virtual(play(shadowed=False))
    answers, after, counted, controller = run_virtual(play(shadowed=True))
    assert answers == plain
    assert after == before
    assert nothing == {}
    assert counted == {'cascade_shadow_total{outcome="compared"}': 5.0}
    assert len(controller.pairs) == 5
    assert min(controller.pairs) > 0.1


@pytest.mark.parametrize(("arm", "why"), [(Arm.STABLE, "stable_degraded"), (Arm.CANARY, "paused")])
def test_nothing_begins_while_either_release_is_above_its_normal_level(arm: Arm, why: str) -> None:
    """It is the first thing that load stops, and goes on by itself."""

    async def play() -> dict[str, float]:
        sidecar = served(_models(), bundle=bundled(levels=LEVELS))
        stages = {"small": stage_of("a"), "large": stage_of("b")}
        escalation = {"kind": "static", "top_m": 2}
        candidate = await _tried(sidecar, stages=stages, escalation=escalation, levels=LEVELS)
        controller = _Controller()
        beside = _beside(sidecar, candidate, controller)
        loaded = candidate if arm is Arm.CANARY else sidecar.service.traffic.stable
        loaded.stepping.pin(LEVELS[1]["name"])
        await _ask(sidecar)
        await asyncio.sleep(1.0)
        loaded.stepping.pin(LEVELS[0]["name"])
        await _ask(sidecar)
        await asyncio.sleep(1.0)
        await beside.aclose()
        assert (len(controller.pairs), controller.left_out) == (1, [why])
        return await sidecar.metrics()

    metrics = run_virtual(play())
    counted = {name: value for name, value in metrics.items() if value and name.startswith("cascade_shadow_total")}
    assert counted == {f'cascade_shadow_total{{outcome="{each}"}}': 1.0 for each in ("compared", why)}


def test_nothing_begins_while_a_request_waits_to_be_admitted() -> None:
    """A seat is what users wait for; the shadow has none, and takes nothing of what is behind the seats."""

    async def play() -> dict[str, float]:
        sidecar = served(_models(), bounds=Bounds(1, 10, 1, 1e9))
        candidate = await _tried(sidecar)
        beside = _beside(sidecar, candidate, _Controller())
        admission, stable = sidecar.service.admission, sidecar.service.traffic.stable
        asked = Asked(None, 0, 1.0, until=asyncio.get_running_loop().time() + 100)
        seats = [admission.ask(asked), admission.ask(asked)]
        await asyncio.sleep(0.01)
        assert admission.oldest_wait_s() > 0
        await stable.deciding().rerank(_REQUEST)
        await asyncio.sleep(1.0)
        for seat in seats:
            admission.leave(seat)
        await beside.aclose()
        return await sidecar.metrics()

    assert run_virtual(play())['cascade_shadow_total{outcome="paused"}'] == 1


def test_judged_queries_are_asked_of_both_and_a_restart_asks_no_query_twice() -> None:
    """The worse release has the relevant document last: 1 - 1/log2(3) each; one of three was told of before."""

    async def play(before: int) -> _Controller:
        sidecar, controller = served(_models()), _Controller(before)
        beside = _beside(sidecar, await _tried(sidecar), controller, parse_gold(_GOLD))
        await asyncio.sleep(10.0)
        await beside.aclose()
        return controller

    assert run_virtual(play(0)).gold == pytest.approx([1 - 1 / 1.5849625] * 3)
    assert len(run_virtual(play(1)).gold) == 2


def _with_gold(data: bytes, digest: str) -> Bundle:
    bundle = bundled(rollout={"gold": digest})
    held = Artefacts(held={artefact_name(artefact_digest(data)): data})
    return replace(bundle, source=replace(bundle.source, artefacts=held))


def test_judged_queries_are_those_of_the_digest_that_the_release_names() -> None:
    """Without one there are none; one that is missing or no such file is refused by its place."""
    assert gold_of(bundled()) is None
    found = gold_of(_with_gold(_GOLD, artefact_digest(_GOLD)))
    assert found is not None
    assert len(found.queries) == 3
    with pytest.raises(ConfigError, match=r"^rollout\.gold: artefact sha256:0000"):
        gold_of(_with_gold(_GOLD, "sha256:" + "0" * 64))
    with pytest.raises(ConfigError, match=r"^rollout\.gold: gold: format"):
        gold_of(_with_gold(b"{}", artefact_digest(b"{}")))
