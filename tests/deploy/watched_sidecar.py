"""What /metrics prints of a sidecar with a model of its own, a server, a calibration and a cache, before and after a little traffic."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import httpx

from cascade.calibration.artefact import Reference, ReferenceBins, artefact_bytes, artefact_digest
from cascade.server.admin import admin_app
from cascade.server.app import public_app
from cascade.server.building import open_service
from cascade.server.settings import Settings
from cascade.testing.calibration import scripted_artefact
from cascade.testing.upstream import FakeTei
from tests.e2e.processes import listening, write_yaml

__all__ = ["scrapes"]

_MODELS: Final = Path(__file__).parents[1] / "fixtures" / "models"
_TEXTS: Final = [f"the keeper trims the lamp {number} times, and the lamp burns" for number in range(12)]


async def scrapes(folder: Path, requests: int = 4) -> tuple[str, str]:
    """Return what is printed before and after so many requests, each with another query."""
    model = folder / "model"
    model.mkdir()
    shutil.copy(_MODELS / "micro-ce.onnx", model / "model.onnx")
    shutil.copy(_MODELS / "micro-ce" / "tokenizer.json", model / "tokenizer.json")
    with listening(FakeTei()) as url:
        release = _release(folder, model, url)
        async with open_service(Settings(release=str(release), record_file=folder / "records.jsonl"), {}) as service:
            public, admin = (
                httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar.test")
                for app in (public_app(service), admin_app(service))
            )
            before = (await admin.get("/metrics")).text
            for number in range(requests):
                body = {"query": f"how is lamp {number} kept", "texts": _TEXTS}
                answer = await public.post("/rerank", json=body)
                assert (answer.status_code, answer.headers["x-cascade-stage"]) == (200, "large")
            return before, (await admin.get("/metrics")).text


def _release(folder: Path, model: Path, url: str) -> Path:
    """Write a release of an embedded small stage in batches and windows, and a large one at ``url``, calibrated."""
    bins = ReferenceBins(edges=(0.0,), shares=(0.5, 0.5))
    artefact = scripted_artefact((), k=5, reference=Reference(candidates=5, score=bins, margin=bins))
    data = artefact_bytes(artefact)
    calibrations = folder / "calibration"
    calibrations.mkdir()
    (calibrations / "fitted.json").write_bytes(data)
    policies = folder / "policies"
    policies.mkdir()
    small: dict[str, Any] = {
        "adapter": "onnx",
        "model": "micro",
        "engine": "onnxruntime",
        "max_length": 64,
        "weights": {"folder": str(model)},
        "batching": {"mode": "token-budget"},
        "windows": {"most": 2, "overlap_tokens": 4},
    }
    large = {"adapter": "tei", "url": url, "model": "fake/reranker", "engine": "tei/1.9", "dtype": "float16"}
    written = {
        "release": "watched-1",
        "stages": {"small": small, "large": large},
        "depth": 10,
        "escalation": {
            "kind": "calibrated",
            "calibration": artefact_digest(data),
            "price_per_pair": 1e-9,
            "max_share": 0.5,
            "k": 5,
        },
        "budgets": {"total_ms": 20_000, "small_ms": 8_000, "large_ms": 8_000, "reserve_ms": 100},
        "levels": [{"name": "normal"}, {"name": "low", "escalation": "none"}],
    }
    return write_yaml(policies / "release.yaml", written)
