"""Series of a fleet, and Prometheus' own tool to play them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.templates import DEPLOY

__all__ = ["Pod", "checked", "play", "promtool"]

_MINUTES: Final = 30


class Pod:
    """One pod's series: counters by what is added to them each minute, gauges by their value."""

    def __init__(self, name: str) -> None:
        self.series: list[dict[str, str]] = []
        self._labels = {"namespace": "search", "pod": name, "job": "search/cascade", "instance": name}

    def counts(self, name: str, per_minute: float, /, **labels: str) -> Pod:
        """Add a counter."""
        return self.shows(name, f"0+{per_minute}x{_MINUTES}", **labels)

    def shows(self, name: str, values: str, /, **labels: str) -> Pod:
        """Add a series in the notation of promtool."""
        matchers = ", ".join(f'{label}="{value}"' for label, value in (self._labels | labels).items())
        self.series.append({"series": f"{name}{{{matchers}}}", "values": values})
        return self

    def decides(self, requests: float, /, *, digest: str, **bad: float) -> Pod:
        """Add all that the rules read of a pod that decides so many requests of 50 candidates each minute."""
        self.shows("cascade_release_info", f"1x{_MINUTES}", digest=digest, release="r", version="1", arm="stable")
        self.shows("cascade_safe_mode", f"{bad.get('safe_mode', 0)}x{_MINUTES}")
        refused = bad.get("refused", 0)
        self.counts("cascade_arm_requests_total", requests - refused, arm="stable", outcome="answered")
        self.counts("cascade_arm_requests_total", refused, arm="stable", outcome="refused")
        self.counts("cascade_arm_late_total", bad.get("late", 0), arm="stable")
        self.counts("cascade_arm_duration_seconds_count", requests, arm="stable")
        for le, slower in (("0.5", bad.get("slow", 0)), ("+Inf", 0)):
            self.counts("cascade_arm_duration_seconds_bucket", requests - slower, arm="stable", le=le)
        self.counts("cascade_internal_faults_total", bad.get("faults", 0))
        self.counts("cascade_arm_degraded_total", bad.get("degraded", 0), arm="stable")
        candidates = requests * bad.get("candidates", 50)
        self.counts("cascade_arm_candidates_total", candidates, arm="stable")
        escalated = candidates * bad.get("escalated", 0.1)
        self.counts("cascade_arm_large_pairs_total", escalated, arm="stable")
        self.counts("cascade_pairs_total", escalated, stage="large")
        return self.counts("cascade_pairs_total", candidates, stage="small")


def promtool() -> str:
    """Return Prometheus' own tool, or skip the test."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not there (Debian: prometheus)")
    return found


def play(folder: Path, pods: Sequence[Pod], expected: Mapping[str, float], at: str = "30m") -> None:
    """Check what expressions are worth at a time: a number, by the series and the recording rules."""
    checks = [
        {"expr": text, "eval_time": at, "exp_samples": [{"labels": "{}", "value": value}]}
        for text, value in expected.items()
    ]
    series = [one for pod in pods for one in pod.series]
    told: dict[str, Any] = {
        "rule_files": [str(DEPLOY / "prometheus" / "rollout-rules.yaml")],
        "evaluation_interval": "30s",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}],
    }
    (folder / "played.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    checked(promtool(), "test", "rules", str(folder / "played.yaml"))


def checked(*command: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
