"""An ONNX graph that is searched and changed: who makes a value, who reads it, what is constant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError, lacks_extra

__all__ = ["Array", "Graph", "read_graph"]

Array = npt.NDArray[Any]


def read_graph(path: Path) -> Graph:
    """Read a model. Raises ConfigError where it cannot be read, or the extra ``weights`` is not installed."""
    try:
        import onnx
    except ImportError:
        raise lacks_extra("cascade weights needs", "weights") from None
    try:
        return Graph(onnx.load(path))
    except Exception as error:  # noqa: BLE001 - protobuf's own types, which differ by version
        raise ConfigError(f"{path}: cannot be read as ONNX: {type(error).__name__}") from None


class Graph:
    """A model's nodes, and its constants by name, whether they stand in initializers or in Constant nodes."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.index()

    @property
    def nodes(self) -> Sequence[Any]:
        return self.model.graph.node  # type: ignore[no-any-return]

    def index(self) -> None:
        """Look at the graph anew; call it after a change that later searches must see."""
        self._makers = {name: node for node in self.nodes for name in node.output}
        self._readers: dict[str, list[Any]] = defaultdict(list)
        for node in self.nodes:
            for name in node.input:
                self._readers[name].append(node)
        self._initial = {tensor.name: tensor for tensor in self.model.graph.initializer}

    def maker(self, name: str) -> Any | None:
        """Return the node that makes a value, None for an input or an initializer."""
        return self._makers.get(name)

    def readers(self, name: str) -> list[Any]:
        """Return the nodes that read a value."""
        return self._readers.get(name, [])

    def only_reader(self, name: str) -> Any | None:
        """Return the node that alone reads a value, None where it is none or several."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 else None

    def constant(self, name: str) -> Array | None:
        """Return a value that does not depend on the input, None where it does or is worked out."""
        from onnx import numpy_helper

        if name in self._initial:
            return np.asarray(numpy_helper.to_array(self._initial[name]))
        node = self._makers.get(name)
        if node is not None and node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    return np.asarray(numpy_helper.to_array(attribute.t))
        if node is not None and node.op_type == "Identity":
            return self.constant(node.input[0])
        return None

    def add_constant(self, name: str, value: Array) -> str:
        """Put a constant in, once by name, and return its name."""
        from onnx import numpy_helper

        if name not in self._initial:
            tensor = numpy_helper.from_array(value, name)
            self.model.graph.initializer.append(tensor)
            self._initial[name] = tensor
        return name

    def set_nodes(self, nodes: Iterable[Any]) -> None:
        """Put these nodes, in order, in place of all, and drop what no output needs any more."""
        wanted = {output.name for output in self.model.graph.output}
        kept = []
        for node in reversed(list(nodes)):
            if any(name in wanted for name in node.output):
                kept.append(node)
                wanted.update(node.input)
        graph = self.model.graph
        made = {name for node in kept for name in node.output}
        del graph.node[:]
        graph.node.extend(kept[::-1])
        for held, names in ((graph.initializer, wanted), (graph.input, wanted), (graph.value_info, made)):
            for place in reversed([place for place, item in enumerate(held) if item.name not in names]):
                del held[place]  # in place: what is put in is copied, weights too
        self.index()

    def forget_shapes(self) -> None:
        """Drop what is told of the shapes of values: onnxruntime works out what it needs."""
        del self.model.graph.value_info[:]

    def to_bytes(self) -> bytes:
        """Return the model as the bytes of its file."""
        return bytes(self.model.SerializeToString())

    def write(self, path: Path) -> None:
        """Write the model. Raises ConfigError where the file cannot be written."""
        import onnx

        try:
            onnx.save(self.model, path)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {type(error).__name__}") from None
