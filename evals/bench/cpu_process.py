"""One engine in a process of its own, asked a line at a time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from evals.bench.cpu_pairs import Request
from evals.bench.processes import clean_environment

__all__ = ["EngineFailed", "Scorer", "scorer"]

_LOAD_S: Final = 180.0
_ANSWER_S: Final = 300.0
_OFFLINE: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "TQDM_DISABLE": "1",
}


class EngineFailed(RuntimeError):
    """An engine's process ended, or did not answer in time. The text is the last line of its error stream at most."""


class Scorer:
    """A started engine."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Any) -> None:
        self._process = process
        self._errors = errors
        self._unread = b""
        self.loaded: dict[str, Any] = self._answer(_LOAD_S)

    def score(self, request: Request, batch: int | None) -> tuple[list[float], float]:
        """Return the scores of a request, and the seconds that the engine took. Raises EngineFailed."""
        asked = {"query": request.query, "documents": request.documents, "batch": batch}
        assert self._process.stdin is not None  # noqa: S101 - it was made with a pipe
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        told = self._answer(_ANSWER_S)
        return told["scores"], told["seconds"]

    @property
    def peak_mib(self) -> float:
        """Return the largest resident set that the process had."""
        for line in (
            Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        ):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024.0
        return 0.0

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - it was made with a pipe
        give_up = time.monotonic() + seconds
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], max(0.0, give_up - time.monotonic()))
            read = os.read(pipe, 1 << 16) if ready else b""
            if not read:
                raise self._failed()
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _failed(self) -> EngineFailed:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return EngineFailed(lines[-1][:300] if lines else "it said nothing")


@contextmanager
def scorer(command: Sequence[str]) -> Iterator[Scorer]:
    """Run an engine for the length of the block. Raises EngineFailed where it does not load."""
    with TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean_environment(**_OFFLINE),
            cwd=Path(__file__).parents[2],
        )
        try:
            yield Scorer(process, errors)
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
