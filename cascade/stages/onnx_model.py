"""Load and run a model with onnxruntime and tokenizers (extra ``embedded``), in the calling thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.policy.release import Weights
from cascade.stages.cores import usable_cores
from cascade.stages.weights import find_model
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    import onnxruntime
    import tokenizers

__all__ = ["OnnxModel", "gather", "worker_pool"]

_KNOWN_INPUTS: Final = {"input_ids", "attention_mask", "token_type_ids"}

Result = TypeVar("Result")


def worker_pool(threads: int | None = None) -> ThreadPoolExecutor:
    """Return the threads that embedded stages share, each running one single-threaded call at a time.

    None means one for each core that this process may keep busy.
    """
    return ThreadPoolExecutor(threads or usable_cores(), thread_name_prefix="embedded")


class OnnxModel:
    """Hold a loaded model and its tokenizer. Safe to call from several threads at once.

    Input is truncated to ``max_length`` tokens, the longer side of a pair first. Text far beyond
    the window is not read. Raises ConfigError where the model cannot be loaded.
    """

    def __init__(self, weights: Weights, max_length: int) -> None:
        try:
            import onnxruntime
            import tokenizers
        except ImportError:
            raise ConfigError("embedded stages need cascade-rerank[embedded]") from None
        files = find_model(weights)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        try:
            self._session: onnxruntime.InferenceSession = onnxruntime.InferenceSession(
                str(files.model), options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer: tokenizers.Tokenizer = tokenizers.Tokenizer.from_file(str(files.tokenizer))
        except Exception as error:  # noqa: BLE001 - both libraries raise undeclared types of their own
            raise ConfigError(f"weights: {files.model.parent} cannot be loaded: {type(error).__name__}") from None
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length, strategy="longest_first")
        self._most_characters = max_length * MOST_CHARACTERS_PER_TOKEN
        self._inputs = {item.name for item in self._session.get_inputs()}
        if unknown := self._inputs - _KNOWN_INPUTS:
            raise ConfigError(f"weights: the model wants inputs {', '.join(sorted(unknown))}, which are not known")

    def encode(self, text: str, pair: str | None = None) -> tokenizers.Encoding:
        """Return the tokens of a text or a pair."""
        most = self._most_characters
        return self._tokenizer.encode(text[:most], None if pair is None else pair[:most])

    def run(self, encodings: Sequence[tokenizers.Encoding]) -> npt.NDArray[np.float64]:
        """Return the model's first output for a batch, padded to its longest entry; the first axis is the batch."""
        longest = max(len(encoding.ids) for encoding in encodings)
        feeds = {
            "input_ids": _padded([encoding.ids for encoding in encodings], longest),
            "attention_mask": _padded([encoding.attention_mask for encoding in encodings], longest),
            "token_type_ids": _padded([encoding.type_ids for encoding in encodings], longest),
        }
        output: Any = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        return np.asarray(output, dtype=np.float64)


def _padded(rows: Sequence[Sequence[int]], width: int) -> npt.NDArray[np.int64]:
    array = np.zeros((len(rows), width), dtype=np.int64)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return array


async def gather(futures: Iterable[Future[Result]]) -> list[Result]:
    """Wait for work in the pool; when cancelled, drop what has not begun."""
    futures = list(futures)
    try:
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))
    finally:
        for future in futures:
            future.cancel()
