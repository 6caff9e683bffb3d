"""What a sidecar says of the tunings that its release names; they refuse nothing."""

from __future__ import annotations

import io
import shutil
import socket
from pathlib import Path
from typing import Any

import orjson
import yaml

from cascade.calibration.artefact import artefact_digest
from cascade.policy.release import OnnxStage, TokenBudget
from cascade.policy.tuning import tuning_bytes
from cascade.server.announcing import announce
from cascade.server.building import open_service
from cascade.server.settings import Settings
from cascade.server.status import status
from cascade.stages.machine import this_machine
from tests.telemetry.captured import captured_log
from tests.tuning.made import tuning_data, tuning_of

_MODELS = Path(__file__).parents[1] / "fixtures" / "models"


def _release(folder: Path, tuning: str) -> Path:
    weights = folder / "weights"
    weights.mkdir()
    shutil.copy(_MODELS / "micro-ce.onnx", weights / "model.onnx")
    shutil.copy(_MODELS / "micro-ce" / "tokenizer.json", weights / "tokenizer.json")
    large: dict[str, Any] = {
        "adapter": "onnx",
        "model": "m",
        "engine": "onnxruntime",
        "weights": {"folder": str(weights)},
        "batching": {"mode": "token-budget", "max_pairs": 7},
        "tuning": tuning,
    }
    data = {
        "release": "tuned-1",
        "stages": {"large": large},
        "depth": 5,
        "escalation": {"kind": "static", "top_m": 5},
        "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 500, "reserve_ms": 10},
    }
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def _tuned_here(folder: Path, **conditions: Any) -> str:
    """Write a tuning of this machine, but for what is changed; return its digest."""
    here = this_machine()
    names = ("cores", "cpu", "instructions", "onnxruntime", "tokenizers", "cascade")
    data = tuning_data()["conditions"] | {name: getattr(here, name) for name in names} | conditions
    written = tuning_bytes(tuning_of(conditions=data))
    (folder / "calibration").mkdir()
    (folder / "calibration" / "tuning.json").write_bytes(written)
    return artefact_digest(written)


def _warnings(log: io.BytesIO) -> list[dict[str, Any]]:
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in lines if "tun" in line["event"]]


async def test_a_tuning_of_this_machine_is_used_and_not_spoken_of(tmp_path: Path) -> None:
    """The stage has its numbers where the release states none; status names the digest, the log says nothing."""
    digest = _tuned_here(tmp_path)
    settings = Settings(release=_release(tmp_path, digest), embedded_threads=2)
    async with open_service(settings, {}) as service:
        spec = service.traffic.stable.bundle.loaded.release.stages.large
        assert isinstance(spec, OnnxStage)
        assert isinstance(spec.batching, TokenBudget)
        assert (spec.batching.max_total_tokens, spec.batching.max_pairs) == (1024, 7)
        assert status(service)["tuning"] == {"faults": [], "stages": {"large": {"digest": digest, "differs": []}}}
        with captured_log() as log, socket.create_server(("127.0.0.1", 0)) as bound:
            announce(service, bound, bound)
        assert _warnings(log) == []


async def test_what_differs_is_warned_of_once_and_serves(tmp_path: Path) -> None:
    """Another processor and another number of threads, in the log and in status."""
    settings = Settings(release=_release(tmp_path, _tuned_here(tmp_path, cpu="Old Processor")), embedded_threads=1)
    async with open_service(settings, {}) as service:
        with captured_log() as log, socket.create_server(("127.0.0.1", 0)) as bound:
            announce(service, bound, bound)
        differs = [
            f"cpu is {this_machine().cpu} here, and was Old Processor",
            "embedded_threads is 1 here, and it chose 2",
        ]
        (line,) = _warnings(log)
        assert (line["event"], line["stage"], line["differs"]) == ("tuned under other conditions", "large", differs)
        assert status(service)["tuning"]["stages"]["large"]["differs"] == differs


async def test_a_tuning_that_is_missing_is_warned_of_and_serves(tmp_path: Path) -> None:
    """The release's own numbers serve."""
    async with open_service(Settings(release=_release(tmp_path, f"sha256:{'0' * 64}")), {}) as service:
        with captured_log() as log, socket.create_server(("127.0.0.1", 0)) as bound:
            announce(service, bound, bound)
        (line,) = _warnings(log)
        assert line["event"] == "tuning cannot be used"
        assert status(service)["tuning"]["faults"] == [line["why"]]
