"""The log of attempts: each try to certify the same contract on the same data spends its share of delta."""

from __future__ import annotations

import fcntl
import json
import math
import os
from pathlib import Path
from typing import Any, Final

from cascade.calibration.certificate import Attempts
from cascade.errors import ConfigError

__all__ = ["attempt", "delta_of"]

_FORMAT: Final = "cascade-attempt/1"
_KEYS: Final = frozenset({"format", "contract", "identity", "number"})
_LARGEST: Final = 64 * 2**20


def delta_of(delta: float, number: int) -> float:
    """Return what the attempt of this number may spend: delta 6 / (pi^2 r^2), which sums to delta over all r."""
    return delta * 6.0 / (math.pi**2 * number**2)


def attempt(path: Path, contract: str, identity: str, delta: float) -> Attempts:
    """Enter an attempt in the log before anything is tested, and return which it is.

    ``contract`` is the digest of what is promised and of the data it is shown on; ``identity`` that of all that
    decides the outcome: the same again is the same attempt, and spends nothing more. The line is written in
    one step under a lock. Raises ConfigError for a log that cannot be written, or is not one.
    """
    try:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            before = _read(file.read(_LARGEST + 1), path)
            mine = [line for line in before if line["contract"] == contract]
            number = next((line["number"] for line in mine if line["identity"] == identity), None)
            if number is None:
                number = len(mine) + 1
                line = {"format": _FORMAT, "contract": contract, "identity": identity, "number": number}
                file.write((json.dumps(line, sort_keys=True) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"--attempts {path}: cannot be read and written: {type(error).__name__}") from None
    return Attempts(number=number, delta=delta_of(delta, number), identity=identity)


def _read(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log. Raises ConfigError for the first that is not as it was written."""
    if len(data) > _LARGEST:
        raise ConfigError(f"--attempts {path}: larger than {_LARGEST} bytes")
    *whole, rest = data.split(b"\n")
    if rest:
        raise ConfigError(f"--attempts {path}, line {len(whole) + 1}: it was cut short")
    lines: list[dict[str, Any]] = []
    counted: dict[str, int] = {}
    for number, text in enumerate(whole, 1):
        line = _line(text)
        if line is None or line["number"] != counted.get(line["contract"], 0) + 1:
            raise ConfigError(f"--attempts {path}, line {number}: not as it was written; attempts cannot be counted")
        counted[line["contract"]] = line["number"]
        lines.append(line)
    return lines


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    sound = isinstance(line, dict) and set(line) == _KEYS and line["format"] == _FORMAT
    return line if sound and isinstance(line["number"], int) and isinstance(line["contract"], str) else None
