"""Score pairs with one library, in its own environment: a line of JSON asks, a line answers. Run by path.

The first argument says what to load: {"engine", "folder", "file"}. When it is loaded a line tells ``versions``,
``load_s`` and ``output`` (``logit`` or ``probability``); then {"query", "documents", "batch"} is answered with
{"scores", "seconds"}: a score a document, and how long the library took, tokenising included. ``batch`` null is
the library's default. Ends at the end of its input. What libraries print goes to the error stream.
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

Score = Callable[[str, Sequence[str], int | None], list[float]]

_PACKAGES: Final = {
    "sentence-transformers-torch": ("sentence-transformers", "transformers", "torch"),
    "sentence-transformers-onnx": ("sentence-transformers", "optimum-onnx", "onnxruntime"),
    "fastembed": ("fastembed", "tokenizers", "onnxruntime"),
    "flashrank": ("flashrank", "tokenizers", "onnxruntime"),
    "infinity-torch": ("infinity-emb", "transformers", "torch"),
    "infinity-optimum": ("infinity-emb", "optimum-onnx", "onnxruntime"),
}
_FLASHRANK: Final = "ms-marco-MiniLM-L-12-v2"


def _sentence_transformers(folder: Path, backend: str) -> tuple[Score, str]:
    from sentence_transformers import CrossEncoder

    keywords = {"provider": "CPUExecutionProvider", "file_name": "onnx/model.onnx"} if backend == "onnx" else {}
    model: Any = CrossEncoder(
        str(folder), backend=backend, device="cpu", model_kwargs=keywords, local_files_only=True, max_length=512
    )

    def score(query: str, documents: Sequence[str], batch: int | None) -> list[float]:
        asked = {} if batch is None else {"batch_size": batch}
        return [float(value) for value in model.predict([(query, text) for text in documents], **asked)]

    return score, "logit"


def _fastembed(folder: Path) -> tuple[Score, str]:
    from fastembed.common.model_description import ModelSource
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    TextCrossEncoder.add_custom_model(model="local/x", sources=ModelSource(hf="local/x"), model_file="model.onnx")
    model = TextCrossEncoder("local/x", specific_model_path=str(folder))

    def score(query: str, documents: Sequence[str], batch: int | None) -> list[float]:
        asked = {} if batch is None else {"batch_size": batch}
        return [float(value) for value in model.rerank(query, list(documents), **asked)]

    return score, "logit"


def _flashrank(folder: Path) -> tuple[Score, str]:
    from flashrank import Ranker, RerankRequest

    ranker = Ranker(_FLASHRANK, cache_dir=str(folder.parent / f"{folder.name}-flashrank"), max_length=512)

    def score(query: str, documents: Sequence[str], batch: int | None) -> list[float]:
        passages = [{"id": place, "text": text} for place, text in enumerate(documents)]
        ranked = ranker.rerank(RerankRequest(query=query, passages=passages))
        by_place = {int(item["id"]): float(item["score"]) for item in ranked}
        return [by_place[place] for place in range(len(documents))]

    return score, "probability"


def _infinity(folder: Path, engine: str) -> tuple[Score, str]:
    from infinity_emb import AsyncEmbeddingEngine, EngineArgs
    from infinity_emb.transformer.crossencoder import optimum

    # with optimum 2 a local folder's file is not found, so it is named
    optimum.get_onnx_files = lambda **_: Path("model.onnx")
    asked = EngineArgs(
        model_name_or_path=str(folder), engine=engine, device="cpu", model_warmup=False, bettertransformer=False
    )
    loop = asyncio.new_event_loop()
    served = AsyncEmbeddingEngine.from_args(asked)
    loop.run_until_complete(served.astart())

    def score(query: str, documents: Sequence[str], batch: int | None) -> list[float]:
        async def ask() -> Any:
            return await served.rerank(query=query, docs=list(documents), raw_scores=True)

        ranked, _ = loop.run_until_complete(ask())
        by_place = {item.index: float(item.relevance_score) for item in ranked}
        return [by_place[place] for place in range(len(documents))]

    return score, "logit"


def _loaded(engine: str, folder: Path) -> tuple[Score, str]:
    if engine.startswith("sentence-transformers-"):
        return _sentence_transformers(folder, engine.rpartition("-")[2])
    if engine.startswith("infinity-"):
        return _infinity(folder, engine.rpartition("-")[2])
    return {"fastembed": _fastembed, "flashrank": _flashrank}[engine](folder)


def main(arguments: Sequence[str]) -> None:
    """Load what the first argument names, then answer until the input ends."""
    asked = json.loads(arguments[0])
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    began = time.perf_counter()
    score, output = _loaded(asked["engine"], Path(asked["folder"]))
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES[asked["engine"]]}
    loaded = {"load_s": time.perf_counter() - began, "output": output, "versions": versions}
    answers.write(json.dumps(loaded) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        scores = score(request["query"], request["documents"], request["batch"])
        answers.write(json.dumps({"scores": scores, "seconds": time.perf_counter() - began}) + "\n")
    os._exit(0)  # a library's threads would keep the process


if __name__ == "__main__":
    main(sys.argv[1:])
