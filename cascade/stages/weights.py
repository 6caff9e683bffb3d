"""Find a model's files, and check them before they are used."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.policy.release import Weights

__all__ = ["ModelFiles", "find_model"]

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The two files that an embedded model is loaded from, as they are now."""

    model: Path
    tokenizer: Path
    _state: tuple[int, ...] | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_state", _state_of(self.model))

    @property
    def is_as_found(self) -> bool:
        """Tell whether the model's file is still the same, as far as that shows without reading it."""
        return _state_of(self.model) == self._state


def find_model(weights: Weights) -> ModelFiles:
    """Return the files of a model, fetched from the hub where one is named.

    Raises ConfigError where a package, folder, hub or file is missing or a checksum differs. A
    package is looked up, never imported.
    """
    folder = _hub(weights) if weights.hub is not None else _folder(weights)
    files = ModelFiles(folder / _MODEL, folder / _TOKENIZER)
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
        raise ConfigError(f"weights: the package {weights.package} is not installed; install cascade-rerank[embedded]")
    return Path(found.submodule_search_locations[0]) / folder


def _hub(weights: Weights) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ConfigError("weights: a hub model needs huggingface_hub; install cascade-rerank[embedded]") from None
    try:
        return Path(snapshot_download(str(weights.hub), revision=weights.revision, allow_patterns=[_MODEL, _TOKENIZER]))
    except Exception as error:  # noqa: BLE001 - some errors are those of its HTTP library, which differs by version
        raise ConfigError(f"weights: {weights.hub} cannot be fetched: {type(error).__name__}") from None


def _check(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ConfigError(f"weights: the sha256 of {path} is {actual[:12]}…, the release says {expected[:12]}…")
