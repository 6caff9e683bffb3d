"""Say what machine this process runs on, as far as the speed of a model depends on it."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from cascade import __version__
from cascade.stages.cores import cpu_instructions, usable_cores

__all__ = ["Machine", "this_machine"]

_CPU_FILE: Final = Path("/proc/cpuinfo")
_ABSENT: Final = "not installed"
_COMPUTE: Final = frozenset(
    [
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "avx_vnni",
        "amx_int8",
        "amx_bf16",
        "amx_tile",
        "asimd",
        "asimdhp",
        "asimddp",
        "bf16",
        "i8mm",
        "sve",
        "sve2",
    ]
)
"""What kernels of matrices ask for, by the names that Linux gives them on x86 and on Arm."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor and the versions that a model's speed depends on.

    ``cores`` are those that this process may use, ``instructions`` those of its vector and matrix units.
    """

    cores: int
    cpu: str
    instructions: tuple[str, ...]
    os: str
    python: str
    cascade: str
    onnxruntime: str
    tokenizers: str


@cache
def this_machine() -> Machine:
    """Return the machine as it was when it was first asked for."""
    return Machine(
        cores=usable_cores(),
        cpu=cpu_model(),
        instructions=tuple(sorted(_COMPUTE & (cpu_instructions() or frozenset()))),
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=".".join(map(str, sys.version_info[:3])),
        cascade=__version__,
        onnxruntime=_version("onnxruntime"),
        tokenizers=_version("tokenizers"),
    )


def cpu_model(file: Path = _CPU_FILE) -> str:
    """Return the processor's name as the system tells it, else its architecture."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [
        after.strip() for before, _, after in (line.partition(":") for line in lines) if before.strip() == "model name"
    ]
    return next(filter(None, named), platform.machine() or "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _ABSENT
