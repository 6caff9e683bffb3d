"""The files of an embedded model: found where the release says, checked, and never guessed."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import onnx
import pytest
from onnx.external_data_helper import set_external_data

from cascade.errors import ConfigError
from cascade.policy.release import Weights
from cascade.stages.weights import ModelFiles, find_model

MODEL, TOKENIZER = b"model bytes", b"{}"
SHA256 = {
    "model.onnx": hashlib.sha256(MODEL).hexdigest(),
    "tokenizer.json": hashlib.sha256(TOKENIZER).hexdigest(),
}


def write_model(folder: Path) -> ModelFiles:
    """Write the two files of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(MODEL)
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    return ModelFiles(folder / "model.onnx", folder / "tokenizer.json")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder of an installed package that must not be imported."""
    folder = tmp_path / "site" / "packaged_model"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield folder
    assert "packaged_model" not in sys.modules


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder where hub models are kept; the hub itself refuses every connection."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    return tmp_path / "hub"


def test_a_folder_holds_both_files(tmp_path: Path) -> None:
    """Model and tokenizer are returned by their full paths."""
    expected = write_model(tmp_path / "m")
    assert find_model(Weights(folder=str(tmp_path / "m"))) == expected
    assert find_model(Weights(folder=str(tmp_path / "m"), sha256=SHA256)) == expected


def _with_weights_beside(folder: Path, cross_encoder: Path, *names: str) -> ModelFiles:
    """Write a model whose tensors lie in these files, in turn."""
    folder.mkdir()
    model = onnx.load(cross_encoder / "model.onnx")
    for number, tensor in enumerate(model.graph.initializer):
        name = names[number % len(names)]
        set_external_data(tensor, name)
    onnx.save_model(model, folder / "model.onnx")
    shutil.copy(cross_encoder / "tokenizer.json", folder)
    return find_model(Weights(folder=str(folder)))


def test_f1_a_digest_is_of_every_file_that_scores_come_from(tmp_path: Path, cross_encoder: Path) -> None:
    """Weights beside the graph count, whatever they are called, and so does the tokenizer; where the files lie does not."""
    names = ("model.onnx_data", "weights.bin", "w" * 127)
    first, second = (_with_weights_beside(tmp_path / each, cross_encoder, *names) for each in ("m", "elsewhere"))
    assert second.digest() == first.digest()
    found = [first.digest()]
    for name in ("model.onnx", "tokenizer.json", *names):
        path = first.model.parent / name
        path.write_bytes(path.read_bytes() + b"others")
        found.append(first.digest())
    assert len(set(found)) == len(found)


def test_files_that_no_score_comes_from_are_in_no_digest(tmp_path: Path, cross_encoder: Path) -> None:
    """A calibration holds on though a folder is tidied."""
    files = _with_weights_beside(tmp_path / "m", cross_encoder, "weights.bin")
    before = files.digest()
    for name in ("model.onnx.bak", "README.md", "weights.bin.orig"):
        (tmp_path / "m" / name).write_bytes(b"others")
    assert files.digest() == before


@pytest.mark.parametrize("before", range(0, 40, 3))
def test_f1_weights_are_found_wherever_the_graph_names_them(tmp_path: Path, before: int) -> None:
    """It is read in blocks, and what names them may lie in two."""
    files = write_model(tmp_path)
    files.model.write_bytes(bytes(2**20 - before) + b"\n\x08location\x12\x07weights" + b"more")
    (tmp_path / "weights").write_bytes(b"one")
    one = files.digest()
    (tmp_path / "weights").write_bytes(b"other")
    assert files.digest() != one


def test_what_was_checked_is_not_read_once_more(tmp_path: Path) -> None:
    """A file whose checksum the release names was read for it just before."""
    write_model(tmp_path)
    found = find_model(Weights(folder=str(tmp_path), sha256=SHA256))
    expected = found.digest()
    for path in (found.model, found.tokenizer):
        path.write_bytes(b"others")
    assert found.digest() == expected


def test_a_file_that_cannot_be_read_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file and what the system says."""
    files = write_model(tmp_path)

    def refused(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(ConfigError, match=r"model\.onnx cannot be read: Permission denied"):
        files.digest()


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_missing_file_is_named_with_its_folder(tmp_path: Path, name: str) -> None:
    """What to put where is said before anything is loaded."""
    write_model(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=rf"^weights: {name} is not in {tmp_path}$"):
        find_model(Weights(folder=str(tmp_path)))


def test_a_folder_that_does_not_exist_is_a_configuration_error(tmp_path: Path) -> None:
    """A misspelt folder reads like a missing file."""
    with pytest.raises(ConfigError, match=r"model\.onnx is not in"):
        find_model(Weights(folder=str(tmp_path / "nowhere")))


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_file_with_another_checksum_is_refused(tmp_path: Path, name: str) -> None:
    """Other bytes than the release names are another model; both checksums are shown in short."""
    write_model(tmp_path)
    (tmp_path / name).write_bytes(b"other bytes")
    actual = hashlib.sha256(b"other bytes").hexdigest()[:12]
    with pytest.raises(ConfigError, match=rf"{name} is {actual}…, the release says {SHA256[name][:12]}…"):
        find_model(Weights(folder=str(tmp_path), sha256=SHA256))


def test_a_checksum_of_a_file_that_is_not_used_is_refused(tmp_path: Path) -> None:
    """A misspelt name must not look like a check that passed."""
    write_model(tmp_path)
    with pytest.raises(ConfigError, match=r"sha256 names modle\.onnx, which is not used"):
        find_model(Weights(folder=str(tmp_path), sha256={"modle.onnx": "0" * 64}))


def test_a_folder_inside_a_package_is_found_without_importing_it(package: Path) -> None:
    """Looking for weights runs no code of the package that carries them."""
    expected = write_model(package / "models" / "small")
    assert find_model(Weights(package="packaged_model", folder="models/small")) == expected


@pytest.mark.parametrize("name", ["no_such_package", "packaged_model.inner", "", ".relative", "sys", "json.nothing"])
def test_a_package_that_is_not_there_says_what_to_install(package: Path, name: str) -> None:
    """Not installed, no package at all, or a name that could only be looked up by importing."""
    with pytest.raises(ConfigError, match=r"is not installed; install cascade-rerank\[embedded\]; in a clone: "):
        find_model(Weights(package=name, folder="models"))


def test_a_hub_model_with_no_hub_in_reach_is_a_configuration_error(hub_cache: Path) -> None:
    """The name and the kind of failure are told at start."""
    with pytest.raises(ConfigError, match=r"^weights: someone/model cannot be fetched: \w+$"):
        find_model(Weights(hub="someone/model"))


def test_a_hub_model_that_was_fetched_before_needs_no_hub(hub_cache: Path) -> None:
    """A restart without network serves the model that is kept, checked all the same."""
    revision = "1234567890123456789012345678901234567890"
    kept = hub_cache / "models--someone--model"
    expected = write_model(kept / "snapshots" / revision)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(revision, encoding="ascii")
    assert find_model(Weights(hub="someone/model", sha256=SHA256)) == expected
    with pytest.raises(ConfigError, match="the sha256 of"):
        find_model(Weights(hub="someone/model", sha256={"model.onnx": "0" * 64}))


def test_a_name_that_no_hub_model_can_have_is_a_configuration_error(hub_cache: Path) -> None:
    """A misspelt name is refused before the network is asked."""
    with pytest.raises(ConfigError, match="cannot be fetched: HFValidationError"):
        find_model(Weights(hub="not a name/at all/ever"))


def test_an_error_of_the_hubs_own_transport_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that refuses is told by the HTTP library of the hub's client, in a class that is not the hub's."""

    class ProxyError(Exception):
        """What no tree of errors but its library's own knows."""

    def refuse(*_: object, **__: object) -> str:
        raise ProxyError("403 Forbidden")

    hub = ModuleType("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", refuse, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ConfigError, match=r"^weights: someone/model cannot be fetched: ProxyError$"):
        find_model(Weights(hub="someone/model"))


def test_a_hub_model_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar alone has no hub client."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"needs huggingface_hub; install cascade-rerank\[embedded\]"):
        find_model(Weights(hub="someone/model"))
