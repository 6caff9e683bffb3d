"""Load and run a model with onnxruntime (extra ``embedded``), in the calling thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError, lacks_extra
from cascade.policy.release import Weights
from cascade.stages.engine.tokens import Ids, Tokens
from cascade.stages.weights import find_model

__all__ = ["DEFAULT_SESSION", "LONGEST_INPUT", "OnnxModel", "SessionOptions", "refused"]

LONGEST_INPUT: Final = 1024
"""Tokens of the longest fixed input: one of ``max_length`` may take a while to load by."""

_KNOWN_INPUTS: Final = {"input_ids", "attention_mask", "token_type_ids"}
_FATAL: Final = 4
"""What is wrong is raised; what the library would write of it besides may tell of the input."""
_LEVELS: Final = {
    "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How onnxruntime runs a model. The default is what stages use; others are there to be measured."""

    intra_threads: int = 1
    graph_level: Literal["off", "basic", "extended", "all"] = "all"
    arena: bool = True
    spinning: bool = True
    denormal_as_zero: bool = False


DEFAULT_SESSION: Final = SessionOptions()


class OnnxModel:
    """Hold a loaded model. Safe to call from several threads at once.

    Raises ConfigError where the model cannot be loaded.
    """

    def __init__(self, weights: Weights, session: SessionOptions = DEFAULT_SESSION) -> None:
        self._library = _onnxruntime()
        self.files = find_model(weights)
        self.weights_sha256 = self.files.digest()
        self._asked = session
        self.open()

    def open(self, rewritten: bytes | None = None) -> None:
        """Run a rewritten graph, or that of the file; what ran before is let go first, and no call may be under way.

        Raises ConfigError where it cannot be loaded, or its file has changed since it was checked; then nothing runs.
        """
        self._session: Any = None
        if rewritten is None and not self.files.is_as_found:
            raise ConfigError(f"weights: {self.files.model} changed while it was loaded")
        given = str(self.files.model) if rewritten is None else rewritten
        options = _native(self._asked)
        try:
            self._session = self._library.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - the library raises undeclared types of its own
            raise ConfigError(f"weights: {self.files.model.parent} cannot be loaded: {type(error).__name__}") from None
        self._session._model_bytes = None  # noqa: SLF001 - it would hold them for as long as it lives, to no use here
        self._inputs = {item.name for item in self._session.get_inputs()}
        self._output = [self._session.get_outputs()[0].name]
        if unknown := self._inputs - _KNOWN_INPUTS:
            raise ConfigError(f"weights: the model wants inputs {', '.join(sorted(unknown))}, which are not known")

    def run(self, inputs: Sequence[Tokens]) -> npt.NDArray[np.float64]:
        """Return the model's first output for a batch, padded to its longest entry; the first axis is the batch."""
        longest = max(map(len, inputs))
        feeds = {
            "input_ids": _padded([each.ids for each in inputs], longest),
            "attention_mask": _padded([np.ones(len(each), dtype=np.int64) for each in inputs], longest),
            "token_type_ids": _padded([each.type_ids for each in inputs], longest),
        }
        output: Any = self._session.run(self._output, {name: feeds[name] for name in self._inputs})[0]
        return np.asarray(output, dtype=np.float64)


@contextmanager
def refused(inputs: str, *, longest: int | None = None) -> Iterator[None]:
    """Tell as ConfigError what a model raises on fixed inputs; ``longest`` is its max_length where they are as long as that."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises undeclared types of its own
        why = (
            ""
            if longest is None
            else f"; it may not take max_length ({longest}) tokens: lower that setting of the stage"
        )
        raise ConfigError(f"weights: the model fails on fixed {inputs}: {type(error).__name__}{why}") from None


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise lacks_extra("embedded stages need", "embedded") from None
    return onnxruntime


def _native(asked: SessionOptions) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = asked.intra_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[asked.graph_level])
    options.enable_cpu_mem_arena = asked.arena
    if not asked.spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if asked.denormal_as_zero:
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options


def _padded(rows: Sequence[Ids], width: int) -> npt.NDArray[np.int64]:
    if len(rows) == 1:
        return rows[0][np.newaxis].astype(np.int64, copy=False)
    array = np.zeros((len(rows), width), dtype=np.int64)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return array
