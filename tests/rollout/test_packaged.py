"""What the releases that ship name as evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from cascade.calibration.artefact import artefact_digest
from cascade.policy.levels import level_names
from cascade.rollout.bundle import evidence_of, load_bundle
from cascade.rollout.load import named_release, offline, packaged_releases
from cascade.rollout.measured import measured_levels, not_measured
from cascade.rollout.supplied import supplied_folder
from cascade.rollout.verify import Severity, verify

_MEASURED: Final = {"default", "japanese-qa"}
_NO_DATA: Final = {"observe", "tei-vllm"}
"""No table has scores of both of their models (docs/overload.md)."""


def test_every_release_that_ships_is_measured_or_known_not_to_be() -> None:
    """A new one has to be put into one of the two."""
    assert set(packaged_releases()) == _MEASURED | _NO_DATA


def test_a_name_is_a_packaged_release_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no such name is a path, there or not."""
    monkeypatch.chdir(tmp_path)
    assert named_release("default") == packaged_releases()["default"]
    assert named_release("mine.yaml") == Path("mine.yaml")
    Path("default").touch()
    assert named_release("default") == Path("default")


@pytest.mark.parametrize("name", sorted(_MEASURED))
def test_a_report_tells_of_every_level(name: str) -> None:
    """Of this policy, so that `serve` says nothing."""
    bundle = load_bundle(packaged_releases()[name], offline({}))
    measured = measured_levels(bundle.loaded, bundle.source)
    assert measured.fault is None
    assert list(not_measured(level_names(bundle.loaded.release), measured)) == []
    assert not [one for one in verify(packaged_releases()[name], {}).findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize("name", sorted(_NO_DATA))
def test_a_release_that_was_not_measured_says_so(name: str) -> None:
    """Nothing stands in for what nobody measured."""
    bundle = load_bundle(packaged_releases()[name], offline({}))
    assert measured_levels(bundle.loaded, bundle.source).fault == "it names no report"


def test_every_file_beside_the_releases_is_named_by_one() -> None:
    """What nothing names only makes the package larger."""
    bundles = [load_bundle(path, offline({})) for path in packaged_releases().values()]
    named = {bundle.loaded.release.calibration for bundle in bundles}.union(
        *(evidence_of(bundle.loaded).values() for bundle in bundles)
    )
    assert {artefact_digest(path.read_bytes()) for path in supplied_folder("calibration").glob("*.json")} == named - {
        None
    }
