"""What a release is read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.rollout.bundle import build_bundle
from cascade.rollout.load import load_release
from cascade.rollout.source import SourceKind, open_source
from cascade.rollout.supplied import supplied_folder
from cascade.rollout.tar import tar_bytes

from .arrange import write_release


def test_a_file_finds_artefacts_beside_it_and_beside_its_folder(tmp_path: Path) -> None:
    """``artifacts`` by name; ``calibration`` beside the file, beside its folder, and the package's own."""
    source = open_source(write_release(tmp_path).path)
    assert source.kind is SourceKind.FILE
    assert source.artefacts.named == tmp_path / "policies" / "artifacts"
    assert source.artefacts.indexed == (
        tmp_path / "policies" / "calibration",
        tmp_path / "calibration",
        supplied_folder("calibration"),
    )


def test_what_ships_lies_in_the_checkout_where_nothing_is_packaged() -> None:
    """Both folders are there."""
    assert (supplied_folder("policies") / "default.yaml").is_file()
    assert (supplied_folder("calibration") / "README.md").is_file()


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_bundle_has_its_own_artefacts_alone(tmp_path: Path, name: str) -> None:
    """Nothing outside a bundle is looked at."""
    written = write_release(tmp_path)
    build_bundle(written.path, tmp_path / name, {})
    source = open_source(tmp_path / name)
    assert source.kind is (SourceKind.TAR if name.endswith(".tar") else SourceKind.FOLDER)
    assert source.text == written.path.read_bytes()
    assert source.artefacts.indexed == ()
    assert source.artefacts.read(written.digest) == written.calibration.read_bytes()


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_every_reader_of_releases_takes_a_bundle(tmp_path: Path, name: str) -> None:
    """A bundle and the file that it was made of are one release."""
    written = write_release(tmp_path)
    build_bundle(written.path, tmp_path / name, {})
    assert load_release(tmp_path / name, {}) == load_release(written.path, {})


def test_strays_in_a_folder_are_named_and_hidden_files_are_a_mounts_own(tmp_path: Path) -> None:
    """A mounted ConfigMap has hidden folders beside what it mounts."""
    written = write_release(tmp_path)
    folder = tmp_path / "bundle"
    build_bundle(written.path, folder, {})
    (folder / "..data").mkdir()
    (folder / "..data" / "release.yaml").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    (folder / "artifacts" / "fitted.json").write_bytes(b"")
    assert open_source(folder).strays == ("artifacts/fitted.json", "notes.txt")


def test_a_folder_without_a_release_is_refused(tmp_path: Path) -> None:
    """The error names the file that is not there."""
    with pytest.raises(ConfigError, match=rf"^release {tmp_path}/release\.yaml: cannot be read: FileNotFoundError$"):
        open_source(tmp_path)


def test_a_tar_without_a_release_is_refused(tmp_path: Path) -> None:
    """The error names the tar."""
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_bytes({}) or b"")
    with pytest.raises(ConfigError, match=rf"^release {path}: no release\.yaml in it$"):
        open_source(path)


def test_a_release_has_a_bound(tmp_path: Path) -> None:
    """A file of a megabyte is no release."""
    path = tmp_path / "release.yaml"
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        open_source(path)


def test_a_folder_that_goes_while_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that is swapped takes its old state away; the next look finds the new one."""
    build_bundle(write_release(tmp_path).path, tmp_path / "bundle", {})

    def gone(self: Path, pattern: str) -> list[Path]:
        raise FileNotFoundError(pattern)

    monkeypatch.setattr(Path, "rglob", gone)
    with pytest.raises(ConfigError, match=r"bundle: cannot be read: FileNotFoundError$"):
        open_source(tmp_path / "bundle")


@pytest.mark.parametrize("name", ["release.yaml", "release.tar", "..data/release.yaml", "bundle"])
def test_links_that_lead_round_are_an_error_of_the_file(tmp_path: Path, name: str) -> None:
    """Of the file itself, of its folder, and of a mount's own link."""
    (tmp_path / "folder").symlink_to("folder")
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "..data").symlink_to("..data")
    (tmp_path / "mount" / "release.yaml").symlink_to("..data/release.yaml")
    for place in (tmp_path / "folder" / name, tmp_path / "mount" / name, tmp_path / "folder", tmp_path / "mount"):
        with pytest.raises(ConfigError, match=r"^release .*cannot be read"):
            open_source(place)
