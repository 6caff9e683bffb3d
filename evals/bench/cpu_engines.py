"""The engines that the CPU benchmark knows: what each loads, in which environment, with which batch sizes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evals.bench.peers.install import INFINITY, LIBRARIES
from tests.engines.environments import Environment

__all__ = ["ENGINES", "PRECISIONS", "SWEPT", "Engine", "command", "named"]

PRECISIONS: Final = ("int8", "fp32")
SWEPT: Final = (1, 4, 8, 16, 32)
"""Batch sizes that are tried for a library's best setting."""

_WORKER: Final = Path(__file__).parent / "peers" / "worker.py"


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to score pairs. ``environment`` None is the project's own; ``folder`` is a suffix of its precision's folder.

    ``sweeps`` tells whether its batch size can be chosen, ``wrong`` why its scores are not those of the model, if they are
    not; ``stage`` is what a release would say of the sidecar's stage beside its weights.
    """

    engine: str
    precisions: tuple[str, ...] = PRECISIONS
    environment: Environment | None = None
    folder: str = ""
    sweeps: bool = False
    wrong: str | None = None
    stage: Mapping[str, Any] = field(default_factory=dict)


_READ_ANEW: Final = {"cached_token_bytes": 0}
"""The same documents come in every round; a library reads them every time, and so shall the sidecar."""

ENGINES: Final[Mapping[str, Engine]] = {
    "cascade": Engine("cascade", stage=_READ_ANEW),
    "cascade-exported": Engine("cascade", stage={**_READ_ANEW, "attention": "exported"}),
    "cascade-fused": Engine("cascade", folder="-fused", stage=_READ_ANEW),
    "sentence-transformers-onnx": Engine("sentence-transformers-onnx", environment=LIBRARIES, sweeps=True),
    "sentence-transformers-torch": Engine("sentence-transformers-torch", ("fp32",), environment=LIBRARIES, sweeps=True),
    "fastembed": Engine("fastembed", environment=LIBRARIES, sweeps=True),
    "flashrank": Engine("flashrank", environment=LIBRARIES),
    "infinity-optimum": Engine(
        "infinity-optimum",
        environment=INFINITY,
        wrong="it leaves segment ids out (all 0), which this model was trained with",
    ),
    "infinity-torch": Engine("infinity-torch", ("fp32",), environment=INFINITY),
}


def named(name: str, precision: str, *, best: bool) -> str:
    """Return an engine's name in the report: int8 goes unsaid."""
    return name + ("-best" if best else "") + ("" if precision == "int8" else f"-{precision}")


def command(engine: Engine, folder: Path, precision: str) -> list[str]:
    """Return what starts an engine's process on the weights of a precision."""
    asked = json.dumps(
        {
            "engine": engine.engine,
            "folder": str((folder / f"{precision}{engine.folder}").resolve()),
            "stage": dict(engine.stage),
        }
    )
    if engine.environment is None:
        return [sys.executable, "-m", "evals.bench.cpu_own", asked]
    return [str(engine.environment.bin / "python"), str(_WORKER), asked]
