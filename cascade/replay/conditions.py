"""Say how a table was made: by what, from what, where and when. No text, no path, no host name."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from cascade.replay.collect import Collecting
from cascade.replay.first_stage import BM25, DENSE
from cascade.replay.fusion import RRF_CONSTANT
from cascade.replay.words import DESCRIPTION
from cascade.stages.base import Stage

__all__ = ["FORMAT", "conditions_of", "depends_on", "versions"]

FORMAT: Final = 1
"""Version of what ``conditions`` holds."""

_PACKAGES: Final = ("cascade-rerank", "numpy", "bm25s", "pystemmer", "pyarrow", "onnxruntime", "tokenizers")


def depends_on(work: Collecting, embedder: Stage | None, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return what the scores of a run depend on: another value of any key makes them another's.

    ``sources`` tells which stage each column is; ``embedder`` is the one behind the dense channel.
    """
    return {
        "format": FORMAT,
        "corpus": work.collection.digests["corpus.jsonl"],
        "queries": work.collection.digests["queries.jsonl"],
        "depth": work.depth,
        "first_stage": _first_stage(work.depth, dense=embedder is not None),
        "embedder": None if embedder is None else asdict(embedder.fingerprint),
        "scorers": {
            name: {"stage": sources[name], "fingerprint": asdict(stage.fingerprint)}
            for name, stage in work.stages.items()
        },
        **_weights(work.stages if embedder is None else {**work.stages, DENSE: embedder}),
    }


def _weights(stages: Mapping[str, Stage]) -> dict[str, dict[str, str]]:
    """Return the digests of what stages inside the sidecar were loaded from; nothing where there is none to tell."""
    observed = {name: stage.observed for name, stage in stages.items()}
    known = {name: told.weights_sha256 for name, told in observed.items() if told is not None and told.weights_sha256}
    return {"weights": known} if known else {}


def _first_stage(depth: int, *, dense: bool) -> str:
    lexical = f"{BM25}: Lucene's variant, k1 1.5, b 0.75; {DESCRIPTION}"
    if not dense:
        return lexical
    return f"{lexical}. {DENSE}: cosine over all documents. Top {depth} of each, joined by RRF({RRF_CONSTANT})"


def conditions_of(
    scored: Mapping[str, Any],
    work: Collecting,
    *,
    concurrency: int,
    threads: int,
    counts: Mapping[str, Any],
    times: Mapping[str, str],
) -> dict[str, Any]:
    """Return the conditions that a table is written with; ``scored`` is what :func:`depends_on` told.

    ``counts`` counts queries by what became of them; ``times`` has ``began`` and ``ended`` in UTC.
    """
    observed = {name: stage.observed for name, stage in work.stages.items()}
    return {
        **scored,
        "collection": {
            "name": work.collection.name,
            "documents": len(work.collection.documents),
            "queries": len(work.collection.queries),
            "files": dict(work.collection.digests),
        },
        "counts": dict(counts),
        "observed": {name: None if told is None else asdict(told) for name, told in observed.items()},
        "milliseconds": "ms_<scorer>: a query's round divided by the pairs sent, the time that other queries took "
        "from it included; an embedding stage keeps vectors of documents, so one seen before costs next to nothing",
        "tokens": "estimate of the whole pair, before a stage cuts it",
        "concurrency": concurrency,
        "threads": threads,
        "versions": versions(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "times": dict(times),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a table depends on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
