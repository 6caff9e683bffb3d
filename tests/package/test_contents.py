"""What is in the wheel and in the archive of the sources, and what is not."""

from __future__ import annotations

import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

from cascade import __version__

from .conftest import ROOT, Built

pytestmark = pytest.mark.package

_FOLDERS: Final = {"cascade/_policies": "policies", "cascade/_calibration": "calibration"}
"""Where the wheel has what lies beside the package in a checkout."""
_SOURCES: Final = {
    "CHANGELOG.md", "LICENSE", "Makefile", "PKG-INFO", "README.md", "calibration", "cascade", "deploy", "docs", "evals", "mkdocs.yml", "policies",
    "pyproject.toml", "requirements.lock", "scripts", "tests",
}  # fmt: skip
_INFO: Final = f"cascade_rerank-{__version__}.dist-info"


def _files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _in_the_checkout(name: str) -> Path:
    for folder, source in _FOLDERS.items():
        if name.startswith(f"{folder}/"):
            return ROOT / source / name.removeprefix(f"{folder}/")
    return ROOT / name


def test_the_wheel_is_the_package_and_nothing_else(built: Built) -> None:
    """Every file is one of the checkout, byte for byte; none is a test, a note, or was left by a run."""
    files = _files(built.wheel)
    packaged = {name: content for name, content in files.items() if not name.startswith(f"{_INFO}/")}
    assert {PurePosixPath(name).parts[0] for name in packaged} == {"cascade"}
    assert {name for name, content in packaged.items() if _in_the_checkout(name).read_bytes() != content} == set()
    hidden = [name for name in packaged if any(part.startswith(".") for part in PurePosixPath(name).parts)]
    stray = [name for name in packaged if "__pycache__" in name or PurePosixPath(name).name.startswith("test_")]
    assert hidden + stray == []


def test_the_wheel_has_all_of_the_package(built: Built) -> None:
    """Modules, the pages' files, the mark of types, and every packaged release with its artefacts."""
    files = _files(built.wheel)
    wanted = {f"{path.relative_to(ROOT)}" for path in (ROOT / "cascade").rglob("*.py")}
    for folder, source in _FOLDERS.items():
        wanted |= {f"{folder}/{path.name}" for path in (ROOT / source).iterdir() if path.is_file()}
    assert wanted - set(files) == set()
    assert "cascade/py.typed" in files
    assert f"{_INFO}/licenses/LICENSE" in files
    assert b"cascade = cascade.cli:main" in files[f"{_INFO}/entry_points.txt"]


def test_the_metadata_is_the_projects(built: Built) -> None:
    """Name, version and extras; nothing that is for development is asked for."""
    told = message_from_bytes(_files(built.wheel)[f"{_INFO}/METADATA"])
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("cascade-rerank", __version__, "Apache-2.0")
    assert {"embedded", "fit", "redis", "sign"} <= set(told.get_all("Provides-Extra", []))
    assert not [each for each in told.get_all("Requires-Dist", []) if each.startswith(("pytest", "ruff", "mypy"))]


def test_the_sources_build_the_same_wheel(built: Built) -> None:
    """What is built from the archive is what is built from the checkout: it lacks nothing."""
    assert _files(built.wheel) == _files(built.direct)


def test_the_sources_are_what_a_build_and_a_test_need(built: Built) -> None:
    """Closed list at the top; below it nothing hidden, and nothing that a run left."""
    with tarfile.open(built.sdist) as archive:
        names = [PurePosixPath(*PurePosixPath(each.name).parts[1:]) for each in archive.getmembers() if each.isfile()]
    assert {name.parts[0] for name in names} - {
        ".gitignore"
    } == _SOURCES  # hatchling adds it: a build from here reads it
    stray = [name for name in names if "__pycache__" in name.parts or name.suffix in {".pyc", ".log", ".sqlite"}]
    hidden = [name for name in names if len(name.parts) > 1 and any(part.startswith(".") for part in name.parts)]
    assert stray + [name for name in hidden if name.name != ".helmignore"] == []
