"""Collect, calibrate, evaluate and certify Cranfield with the packaged models, by the commands that a user runs.

Reads the collection in place. `python -m evals.cranfield_run --work DIR --out FILE`. A table that is in the work
folder already is not collected again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from evals.first_stage import shared_data

_ROLES: Final = ("--table", "cranfield.parquet", "--first-stage", "bm25", "--small", "small", "--large", "large")
_TOLD: Final = (
    "queries", "does the large stage help", "ONLY", "escalation", "large helps", "CERTIFIED", "sends", "must certify",
    "would do", "certify, and the easiest",
)  # fmt: skip
_LONGEST: Final = 240
_MADE: Final = (
    "fitted.json", "fitted.yaml", "report.json", "default.json", "one-sided.json", "fitted-certificate.json", "static.json",
    "attempts.jsonl",
)  # fmt: skip
_PATIENCE_S: Final = 3600


def main() -> None:
    """Run every step, whatever the one before it ended with, and write what each said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    steps = [step(asked.work, command, secret) for command, secret in _commands(asked.work)]
    done = {"steps": steps, "python": platform.python_version(), "conclusion": conclusion(steps)}
    asked.out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


def _commands(work: Path) -> list[tuple[list[str], str]]:
    """Return the commands, and what in each is this machine's own and not told."""
    dataset = str(shared_data() / "beir" / "cranfield")
    release = str(Path(__file__).parents[1] / "policies" / "default.yaml")
    commands: list[tuple[list[str], str]] = []
    if not (work / "cranfield.parquet").exists():
        commands.append((["collect", "--dataset", dataset, "--out", "cranfield.parquet", "--depth", "50"], dataset))
    for made in _MADE:
        (work / made).unlink(missing_ok=True)
    fit = ["--out", "fitted.json", "--release", release, "--release-out", "fitted.yaml"]
    one_percent = ["--epsilon", "0.01"]
    return [
        *commands,
        (["calibrate", *_ROLES, *fit], release),
        (["eval", *_ROLES, "--release", release, "--out", "report.json"], release),
        (["certify", *_ROLES, *one_percent, "--release", release, "--out", "default.json"], release),
        (
            ["certify", *_ROLES, *one_percent, "--release", release, "--sided", "one", "--out", "one-sided.json"],
            release,
        ),
        (["certify", *_ROLES, *one_percent, "--release", "fitted.yaml", "--out", "fitted-certificate.json"], release),
        (["certify", *_ROLES, *one_percent, "--family", "static", "--out", "static.json"], release),
    ]


def step(work: Path, command: Sequence[str], own: str) -> dict[str, Any]:
    """Run one command in the work folder; return how it ended and the lines that say what was found."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cascade.cli", *command],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        env=_environment(),
    )
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    said = [line[:_LONGEST] for line in lines if any(part in line for part in _TOLD)]
    told = " ".join("PATH" if part == own else part for part in command)
    return {
        "command": f"cascade {told}",
        "status": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "said": said,
    }


def _environment() -> dict[str, str]:
    here = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": here, "COLUMNS": "400", "TERM": "dumb"}


def conclusion(steps: Sequence[dict[str, Any]]) -> str:
    """Say in a sentence what came of the tries to certify."""
    tries = [each["status"] for each in steps if each["command"].startswith("cascade certify")]
    return (
        f"Of {len(tries)} tries to certify 1%, {tries.count(0)} succeeded and {tries.count(1)} were refused. That the large stage "
        "helps is not shown here, and losses against it are signed: a policy that is better than always-large is certified to "
        "lose at most 1% with few queries, and that is no reason to have the large stage at all. Harm alone is not certified."
    )


if __name__ == "__main__":
    main()
