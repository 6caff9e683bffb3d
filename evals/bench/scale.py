"""How long `cascade eval` takes and how much memory it needs, by the number of rows.

    python -m evals.bench.scale [--rows 100000,1000000] [--workers ray:2] [--folder DIR] [--json FILE]

A table is drawn (seeded) and written a thousand queries at a time: 100 candidates a query, three channels, a small and a
large scorer that see the same worth with more and less noise, and judgements. It has the column names of the packaged
Japanese calibration, which is replayed on it with its policy at 44 prices, every baseline and every section. Each
evaluation is a process of its own: time is that of its wall clock and of all processors, memory the largest resident
set that the system saw (of the process, not of Ray's workers).
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

__all__ = ["main", "write_drawn"]

_CANDIDATES: Final = 100
_AT_A_TIME: Final = 1000
_NOISE: Final[Mapping[str, float]] = {
    "bm25": 1.5,
    "me5_small": 1.3,
    "bge_m3_dense": 1.2,
    "ce_ja_xsmall": 0.9,
    "ce_bge_v2_m3": 0.3,
}
_CALIBRATION: Final = "calibration/japanese-qa.json"
_LIMIT_MIB: Final = 2048.0
_MEASURED: Final = """
import json, os, subprocess, sys, time
began = time.monotonic()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
told = {"wall_s": time.monotonic() - began, "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}
print(json.dumps({"status": process.returncode, **told}))
"""


def write_drawn(path: Path, rows: int, seed: int) -> None:
    """Write a table of so many rows, sorted by query, never more of it in memory than a thousand queries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    queries, draw, writer = rows // _CANDIDATES, np.random.default_rng(seed), None
    try:
        for start in range(0, queries, _AT_A_TIME):
            drawn = _drawn(range(start, min(start + _AT_A_TIME, queries)), draw)
            table = pa.table(drawn)
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _drawn(queries: range, draw: np.random.Generator) -> dict[str, Any]:
    rows = len(queries) * _CANDIDATES
    worth = draw.normal(size=rows) + np.repeat(draw.normal(0.0, 0.5, len(queries)), _CANDIDATES)
    scores = {name: worth + noise * draw.normal(size=rows) for name, noise in _NOISE.items()}
    return {
        "query_id": np.repeat([f"q{number:08}" for number in queries], _CANDIDATES),
        "doc_id": [f"d{row % _CANDIDATES:03}" for row in range(rows)],
        **{name: values.astype(np.float32) for name, values in scores.items()},
        "rel": (worth > 1.2).astype(np.int8),
    }


def _evaluated(table: Path, workers: str | None) -> dict[str, float]:
    *channels, small, large = _NOISE
    command = [sys.executable, "-m", "cascade.cli", "eval", "--table", str(table), "--first-stage", ",".join(channels)]
    command += ["--small", small, "--large", large, "--calibration", _CALIBRATION]
    command += ["--out", str(table.with_suffix(".json")), *(["--workers", workers] if workers else [])]
    # A process begins with the peak of the one that made it: a small one stands between, so that ours does not count.
    done = subprocess.run([sys.executable, "-c", _MEASURED, *command], stdout=subprocess.PIPE, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    if status := told.pop("status"):
        raise SystemExit(f"cascade eval ended with {status:g}")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each size, write them as JSON where asked; return 1 where one took more memory than the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found = []
    print(f"{'rows':>10}{'queries':>9}{'wall s':>9}{'cpu s':>9}{'cpu us/row':>12}{'peak MiB':>10}")
    with TemporaryDirectory(dir=options.folder) as folder:
        for rows in map(int, options.rows.split(",")):
            table = Path(folder, f"drawn-{rows}.parquet")
            write_drawn(table, rows, options.seed)
            row = {"rows": rows, "queries": rows // _CANDIDATES, **_evaluated(table, options.workers)}
            found.append(row)
            print(
                f"{rows:10}{row['queries']:9}{row['wall_s']:9.1f}{row['cpu_s']:9.1f}"
                f"{row['cpu_s'] / rows * 1e6:12.1f}{row['peak_mib']:10.0f}",
                flush=True,
            )
            table.unlink()
    if options.json:
        told = {"python": platform.python_version(), "numpy": np.__version__, "workers": options.workers, "rows": found}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["peak_mib"] <= _LIMIT_MIB for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
