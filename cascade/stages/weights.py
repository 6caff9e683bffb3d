"""Find a model's files, and check them before they are used."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Final

import orjson

from cascade.errors import ConfigError, lacks_extra
from cascade.policy.release import Weights

__all__ = ["ModelFiles", "digest_of", "find_model"]

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"
_LOCATION: Final = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
"""How a graph names the file that a tensor lies in: an entry of protobuf, a key and a value of so many bytes."""
_ENTRY_BYTES: Final = 256
"""More than such an entry takes."""
_BLOCK_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The two files that an embedded model is loaded from, as they are now; ``sha256`` has what was checked, by name."""

    model: Path
    tokenizer: Path
    sha256: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    _state: tuple[int, ...] | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_state", _state_of(self.model))

    @property
    def is_as_found(self) -> bool:
        """Tell whether the model's file is still the same, as far as that shows without reading it."""
        return _state_of(self.model) == self._state

    def digests(self) -> dict[str, str]:
        """Return the sha256 of all that scores come from: graph, weights in files beside it, and tokenizer, by name.

        What was checked is not worked out again. Raises ConfigError where a file cannot be read.
        """
        parts = {path.name: path for path in (self.model, self.tokenizer)} | _weights_beside(self.model)
        return {name: self.sha256.get(name) or _sha256(path) for name, path in parts.items()}

    def digest(self) -> str:
        """Return one sha256 of these. Raises ConfigError."""
        return digest_of(self.digests())


def digest_of(digests: Mapping[str, str]) -> str:
    """Return one sha256 of those of files by name."""
    return hashlib.sha256(orjson.dumps(digests, option=orjson.OPT_SORT_KEYS)).hexdigest()


def find_model(weights: Weights) -> ModelFiles:
    """Return the files of a model, fetched from the hub where one is named.

    Raises ConfigError where a package, folder, hub or file is missing or a checksum differs. A
    package is looked up, never imported.
    """
    folder = _hub(weights) if weights.hub is not None else _folder(weights)
    files = ModelFiles(folder / _MODEL, folder / _TOKENIZER, weights.sha256)
    for path in (files.model, files.tokenizer):
        if not path.is_file():
            hint = "" if folder.is_absolute() else "; a relative folder counts from the current one"
            raise ConfigError(f"weights: {path.name} is not in {folder.absolute()}{hint}")
        _check(path, weights.sha256.get(path.name))
    unknown = weights.sha256.keys() - {_MODEL, _TOKENIZER}
    if unknown:
        raise ConfigError(f"weights: sha256 names {', '.join(sorted(unknown))}, which is not used")
    return files


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns


def _folder(weights: Weights) -> Path:
    folder = Path(str(weights.folder))
    if weights.package is None:
        return folder
    # a dotted name is not looked up, since that would import what stands before the dot
    found = importlib.util.find_spec(weights.package) if weights.package.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise lacks_extra(f"weights: the package {weights.package} is not installed; install", "embedded")
    return Path(found.submodule_search_locations[0]) / folder


def _hub(weights: Weights) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise lacks_extra("weights: a hub model needs huggingface_hub; install", "embedded") from None
    try:
        return Path(snapshot_download(str(weights.hub), revision=weights.revision, allow_patterns=[_MODEL, _TOKENIZER]))
    except Exception as error:  # noqa: BLE001 - some errors are those of its HTTP library, which differs by version
        raise ConfigError(f"weights: {weights.hub} cannot be fetched: {type(error).__name__}") from None


def _check(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    actual = _sha256(path)
    if actual != expected:
        raise ConfigError(f"weights: the sha256 of {path} is {actual[:12]}…, the release says {expected[:12]}…")


def _weights_beside(graph: Path) -> dict[str, Path]:
    """Return the files beside a graph that it keeps weights in, by the name that it has for them."""
    found: set[bytes] = set()
    block = b""
    with _opened(graph) as file:
        while read := file.read(_BLOCK_BYTES):
            block = block[-_ENTRY_BYTES:] + read  # an entry may be in two blocks
            ends = ((entry.end(), entry[1][0]) for entry in _LOCATION.finditer(block))
            found |= {block[end : end + size] for end, size in ends if end + size <= len(block)}
    named = {name: graph.parent / name for name in (each.decode("utf-8", "replace") for each in found)}
    return {name: path for name, path in named.items() if path.is_file()}


def _sha256(path: Path) -> str:
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Open a file to be read. Raises ConfigError where it cannot be, inside the block too."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"weights: {path} cannot be read: {error.strerror}") from None
