"""The sidecar as `cascade serve` runs it, which also tells of its tasks, its objects and its stalls at SIGUSR1.

python -m evals.soak.served SETTINGS.json FILE
"""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import orjson

from cascade.server.lifecycle import serve
from cascade.server.settings import Settings

__all__ = ["main"]

_STEP_S: Final = 0.01
_STALL_S: Final = 0.02
_WATCHING: Final = "stalls, for the soak"


def main(settings: Path, told: Path) -> None:
    """Serve, and at each signal append a line to ``told``."""
    stalls: list[tuple[float, float, float]] = []
    watching: set[asyncio.Task[None]] = set()

    def tell(number: int, frame: object) -> None:
        gc.collect()
        running = (task.get_name() for task in asyncio.all_tasks() if task not in watching)
        names = Counter(re.sub(r"\d+", "N", name) for name in running)
        line = {"tasks": sum(names.values()), "names": names, "objects": len(gc.get_objects()), "stalls": stalls}
        if not watching:
            watching.add(asyncio.get_running_loop().create_task(_watch(stalls), name=_WATCHING))
        with told.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    signal.signal(signal.SIGUSR1, tell)
    serve(Settings.model_validate_json(settings.read_bytes()))


async def _watch(stalls: list[tuple[float, float, float]]) -> None:
    """Note each time that the loop came back late: since when, for how many ms, and how many of them it computed."""
    while True:
        began, computed = time.monotonic(), time.thread_time()
        await asyncio.sleep(_STEP_S)
        late_s = time.monotonic() - began - _STEP_S
        if late_s > _STALL_S:
            stalls.append((began, late_s * 1000, (time.thread_time() - computed) * 1000))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
