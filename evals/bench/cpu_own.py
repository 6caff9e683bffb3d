"""Score pairs with the sidecar's engine, or with a plain loop: a line of JSON asks, a line answers (see peers/worker.py).

``cascade`` is the stage that a release makes, with its deadline, reader and threads; ``attention`` in its first answer tells
in which form its attention runs. ``reference`` calls onnxruntime with
one pair after another, one thread, its default graph: nothing is batched, padded, kept or shared. Its scores are what the
others are held against.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cascade.guard.deadline import Deadline
from cascade.policy.release import Release
from cascade.stages.build import build_stages
from cascade.stages.engine.workers import worker_pool
from cascade.text import Text
from cascade.types import StageName

__all__ = ["main", "release_of"]

Score = Callable[[str, Sequence[str]], list[float]]
_ROUND_MS = 600_000.0


def release_of(folder: Path, **stage: Any) -> Release:
    """Return a release whose large stage is the model in a folder, and which has no other."""
    large = {
        "adapter": "onnx",
        "model": "benchmark",
        "engine": "onnxruntime",
        "weights": {"folder": str(folder)},
        **stage,
    }
    return Release.model_validate(
        {
            "release": "benchmark",
            "stages": {"large": large},
            "depth": 50,
            "escalation": {"kind": "static", "top_m": 20},
            "budgets": {"total_ms": _ROUND_MS, "small_ms": _ROUND_MS, "large_ms": _ROUND_MS, "reserve_ms": 0},
        }
    )


def _cascade(folder: Path, closing: ExitStack, **stage: Any) -> tuple[Score, str | None]:
    """Return what scores with a release's large stage, and in which form its attention runs."""
    pool = worker_pool()
    closing.callback(pool.close)
    release = release_of(folder, **stage)
    stages = build_stages(release, clock=time.monotonic, pool=pool, environment=os.environ)
    large = stages[StageName.LARGE]
    loop = asyncio.new_event_loop()
    loop.run_until_complete(large.start())
    closing.callback(lambda: loop.run_until_complete(large.aclose()))

    def score(query: str, documents: Sequence[str]) -> list[float]:
        async def ask() -> list[float]:
            deadline = Deadline.after_ms(_ROUND_MS, time.monotonic)
            texts = [Text(document) for document in documents]
            answer = await large.score(Text(query), texts, deadline=deadline, call_id="benchmark")
            return [score for score in answer.scores if score is not None]

        return loop.run_until_complete(ask())

    return score, None if large.observed is None else large.observed.attention


def _reference(folder: Path) -> Score:
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512, strategy="longest_first")
    inputs = {item.name for item in session.get_inputs()}

    def one(query: str, document: str) -> float:
        read = tokenizer.encode(query, document)
        feeds = {"input_ids": read.ids, "attention_mask": read.attention_mask, "token_type_ids": read.type_ids}
        output: Any = session.run(None, {name: np.array([feeds[name]], dtype=np.int64) for name in inputs})[0]
        return float(output.reshape(-1)[0])

    return lambda query, documents: [one(query, document) for document in documents]


def main(arguments: Sequence[str] | None = None) -> None:
    """Load what the first argument names, then answer until the input ends."""
    asked = json.loads((sys.argv[1:] if arguments is None else arguments)[0])
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what is logged stands in no answer
    began = time.perf_counter()
    with ExitStack() as closing:
        folder = Path(asked["folder"])
        if asked["engine"] == "reference":
            score, attention = _reference(folder), None
        else:
            score, attention = _cascade(folder, closing, **asked.get("stage", {}))
        versions = {name: importlib.metadata.version(name) for name in ("cascade-rerank", "tokenizers", "onnxruntime")}
        load_s = time.perf_counter() - began
        loaded = {"load_s": load_s, "output": "logit", "versions": versions, "attention": attention}
        answers.write(json.dumps(loaded) + "\n")
        for line in sys.stdin:
            request = json.loads(line)
            began = time.perf_counter()
            scores = score(request["query"], request["documents"])
            answers.write(json.dumps({"scores": scores, "seconds": time.perf_counter() - began}) + "\n")


if __name__ == "__main__":
    main()
