"""From what a running sidecar's /metrics prints to a plan, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cascade.testing.upstream import FakeTei
from tests.e2e.processes import Process, cascade, listening, serving, write_yaml

_RELEASE: Final[dict[str, Any]] = {
    "release": "planned-1",
    "stages": {
        name: {"adapter": "tei", "url": "${CASCADE_UPSTREAM_URL}", "model": name, "engine": "tei/1.9"}
        for name in ("small", "large")
    },
    "depth": {"kind": "signals", "default": 30, "rules": [{"when": [{"signal": "query.tokens", "above": 1000}], "depth": 50}]},
    "escalation": {"kind": "static", "top_m": 10},
    "budgets": {"total_ms": 5000, "small_ms": 2000, "large_ms": 2000, "reserve_ms": 20},
}  # fmt: skip
_THROUGHPUT: Final = "small=tokens_per_s:100000,large=tokens_per_s:10000"


def _scrape(process: Process, path: Path) -> str:
    with httpx.Client(base_url=process.admin, trust_env=False) as admin:
        path.write_text(admin.get("/metrics").text, encoding="utf-8")
    return str(path)


def test_what_a_sidecar_served_is_planned_for(tmp_path: Path) -> None:
    """Five queries of 40 candidates: 30 pairs of each at the small stage and 10 at the large, as long as the server counted them."""
    release = str(write_yaml(tmp_path / "release.yaml", _RELEASE))
    texts = [f"the keeper trims lamp {number}" for number in range(40)]
    out = tmp_path / "capacity.json"
    with listening(FakeTei(tokens_of=lambda query, text: 40)) as url:
        with serving(tmp_path, "--release", release, CASCADE_UPSTREAM_URL=url) as process:
            early = _scrape(process, tmp_path / "early.prom")
            with httpx.Client(base_url=process.public, trust_env=False, timeout=30) as client:
                for number in range(5):
                    answer = client.post("/rerank", json={"query": f"how is lamp {number} kept", "texts": texts})
                    assert answer.headers["x-cascade-stage"] == "large"
            late = _scrape(process, tmp_path / "late.prom")
        done = cascade("capacity", "--release", release, "--metrics", early, "--metrics", late, "--throughput", _THROUGHPUT,
                       "--out", str(out), variables={})  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    plan = json.loads(out.read_text(encoding="utf-8"))
    stages = plan["levels"][0]["stages"]
    told = {name: (stage["pairs_per_query"], stage["pairs_from"]) for name, stage in stages.items()}
    assert told == {"small": (30.0, "metrics"), "large": (10.0, "constant")}
    assert stages["small"]["tokens_per_pair"] == pytest.approx(40)
    assert plan["arrivals"]["windows"] == 1
    assert plan["arrivals"]["mean_qps"] * plan["arrivals"]["seconds"] == pytest.approx(5)
    assert [file["name"] for file in plan["conditions"]["metrics"]["files"]] == ["early.prom", "late.prom"]
    swapped = cascade(
        "capacity",
        "--release",
        release,
        "--metrics",
        late,
        "--metrics",
        early,
        "--throughput",
        _THROUGHPUT,
        variables={},
    )
    assert swapped.returncode == 2
    assert b"not in order of time" in swapped.stderr
