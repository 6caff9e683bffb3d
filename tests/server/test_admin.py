"""The admin listener."""

from __future__ import annotations

from pathlib import Path

from cascade import __version__
from cascade.server.access import Access
from cascade.stages.base import Congestion, Observed
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from tests.server.rollout_desk import FakeDesk
from tests.server.sidecar import BODIES, sidecar


async def test_metrics_are_prometheus_text_and_count_requests() -> None:
    """The exposition names its format and grows with each answer."""
    served = sidecar()
    await served.post("/rerank", BODIES["tei"]("q", ["a"]))
    response = await served.admin.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert (await served.metrics())['cascade_requests_total{dialect="tei",stage="large"}'] == 1


async def test_metrics_show_a_stage_whose_server_cannot_serve_it() -> None:
    """The gauge is 1 for an unusable stage and follows it back to 0."""
    small = ScriptedStage(overlap, unusable="not_a_reranker")
    served = sidecar(small)
    assert (await served.metrics())['cascade_stage_unusable{stage="small"}'] == 1
    assert (await served.metrics())['cascade_stage_unusable{stage="large"}'] == 0
    small.unusable = None
    assert (await served.metrics())['cascade_stage_unusable{stage="small"}'] == 0


async def test_h1_status_tells_the_active_release_and_each_stage() -> None:
    """Release, digests, readiness, and what each stage declares, observed and lacks; no address."""
    large = ScriptedStage(overlap, observed=Observed(model="m", max_length=512), unusable="unknown_model")
    served = sidecar(large=large)
    response = await served.admin.get("/status")
    body = response.json()
    stages = body.pop("stages")
    body["stepping"]["since_s"] = 0.0
    assert body == {
        "version": __version__,
        "ready": True,
        "draining": False,
        "admission": {"held": 0, "seats": {"short": 0, "long": 0}, "waiting": {"short": 0, "long": 0}},
        "start": {"passed_over": [], "taken_back": False},
        "rollout": {"state_fault": None},
        "candidate": None,
        "cache": None,
        "release": "test-1",
        "digest": "sha256:release",
        "policy_digest": "sha256:policy",
        "level": "normal",
        "levels": ["normal"],
        "measured": {"why_not": "it names no report", "levels": {}},
        "evidence_faults": {},
        "tuning": {"faults": [], "stages": {}},
        "stepping": {
            "why": "start",
            "since_s": 0.0,
            "pinned": False,
            "hold_s": 5.0,
            "forecast": None,
            "beside_paused": False,
        },
        "calibration": {"digest": None, "state": "none", "reasons": [], "uncompared": []},
    }
    assert set(stages) == {"small", "large"}
    assert stages["small"]["cache"] == "off"
    assert stages["small"]["declared"]["model"] == "scripted"
    assert stages["small"]["observed"] is None
    assert stages["small"]["unusable"] is None
    assert stages["large"]["observed"]["max_length"] == 512
    assert stages["large"]["unusable"] == "unknown_model"
    assert "upstream.test" not in response.text


async def test_the_admin_listener_reranks_nothing() -> None:
    """Public routes are not on the admin listener."""
    served = sidecar()
    assert (await served.admin.post("/rerank", content=b"{}")).status_code == 404
    assert (await served.admin.get("/health")).status_code == 404


async def test_probes_may_ask_the_admin_listener(tmp_path: Path) -> None:
    """Where the public one wants a certificate: without a key, and with what the public one would answer."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys: [{{name: a, sha256: {'a' * 64}, rights: [read]}}]", encoding="utf-8")
    served = sidecar(admin_access=Access(keys, "admin_keys_file", now=lambda: 0.0))
    assert (await served.admin.get("/status")).status_code == 401
    for ready, status in ((True, 200), (False, 503)):
        served.service.ready = ready
        assert (await served.admin.get("/readyz")).status_code == status
        assert (await served.admin.get("/livez")).status_code == 200
        assert (await served.admin.post("/livez")).status_code == 401


async def test_what_a_server_told_of_its_load_is_shown_with_how_old_it_is() -> None:
    """Fresh, then stale, then so old that the server counts as one that tells nothing: gauges and status say so."""
    clock = _Clock()
    served = sidecar(ScriptedStage(overlap, congestion=Congestion(at=0.0, waiting=7)), clock=clock)
    for now, stale, silent in ((15.0, 0, 0), (15.1, 1, 0), (150.0, 1, 0), (150.1, 1, 1)):
        clock.now = now
        shown = await served.metrics()
        assert shown['cascade_upstream_waiting{stage="small"}'] == 7
        assert shown['cascade_upstream_signal_stale{stage="small"}'] == stale
        assert shown['cascade_upstream_signal_silent{stage="small"}'] == silent
        load = (await served.admin.get("/status")).json()["stages"]["small"]["load"]
        assert (load["stale"], load["silent"], load["age_s"]) == (bool(stale), bool(silent), now)


async def test_a_metric_shows_that_what_the_source_names_cannot_be_used() -> None:
    """So that an alert sees it; without a desk, and where it can be used, it is 0."""
    for desk, shown in ((None, 0), (FakeDesk(), 0), (FakeDesk(desired_fault="not signed"), 1)):
        assert (await sidecar(desk=desk).metrics())["cascade_desired_unusable"] == shown


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now
