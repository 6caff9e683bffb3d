"""Loading a release with its calibration, and packing both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.errors import ConfigError
from cascade.rollout.bundle import build_bundle, contents_of, evidence_of, load_bundle
from cascade.rollout.load import load_release
from cascade.rollout.source import open_source
from cascade.rollout.verify import verify
from cascade.testing.calibration import scripted_artefact

from .arrange import artefact_for, write_release


def test_a_release_is_loaded_with_its_calibration(tmp_path: Path) -> None:
    """The artefact that it names by digest is ready to estimate."""
    written = write_release(tmp_path)
    bundle = load_bundle(written.path, {})
    assert bundle.fault is None
    assert bundle.calibration is not None
    assert bundle.calibration.sha256 == written.digest
    assert bundle.calibration.channels == ("bm25",)


def test_a_release_that_reads_none_has_no_calibration(tmp_path: Path) -> None:
    """There is nothing to be missed either."""
    bundle = load_bundle(write_release(tmp_path, escalation={"kind": "static", "top_m": 5}).path, {})
    assert (bundle.calibration, bundle.fault) == (None, None)


def test_a_missing_calibration_is_a_fault_and_no_error(tmp_path: Path) -> None:
    """The safe mode of the release can serve."""
    written = write_release(tmp_path)
    written.calibration.unlink()
    bundle = load_bundle(written.path, {})
    assert bundle.calibration is None
    assert bundle.fault is not None
    assert bundle.fault.startswith(f"artefact {written.digest}: no file has this digest")


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"{}", "calibration sha256:.*: format: Field required"), (b"[", "calibration sha256:.*: file: Invalid JSON")],
)
def test_a_calibration_that_cannot_be_read_is_a_fault(tmp_path: Path, content: bytes, told: str) -> None:
    """Bytes of the right digest that are no calibration are told by key."""
    written = write_release(tmp_path)
    data = yaml.safe_load(written.path.read_bytes())
    data["escalation"]["calibration"] = artefact_digest(content)
    written.path.write_text(yaml.safe_dump(data))
    written.calibration.write_bytes(content)
    bundle = load_bundle(written.path, {})
    assert bundle.fault is not None
    assert re.match(told, bundle.fault)


def test_a_release_that_is_none_is_an_error(tmp_path: Path) -> None:
    """What cannot serve at all is not loaded."""
    with pytest.raises(ConfigError, match="depth"):
        load_bundle(write_release(tmp_path, depth=-1).path, {})


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_bundle_has_the_release_and_what_it_names(tmp_path: Path, name: str) -> None:
    """release.yaml as it was, the calibration and the evidence by digest, and nothing else."""
    written = write_release(tmp_path)
    (tmp_path / "calibration" / "unnamed.json").write_bytes(b"{}")
    loaded = build_bundle(written.path, tmp_path / name, {})
    contents = contents_of(open_source(tmp_path / name), loaded)
    assert contents.pop("release.yaml") == written.path.read_bytes()
    digests = {written.digest, *evidence_of(loaded).values()}
    assert set(contents) == {f"artifacts/{digest.removeprefix('sha256:')}.json" for digest in digests}
    if not name.endswith(".tar"):
        files = {path.relative_to(tmp_path / name).as_posix() for path in (tmp_path / name).rglob("*.*")}
        assert files == {"release.yaml", *contents}


def test_the_same_release_makes_the_same_tar_anywhere(tmp_path: Path) -> None:
    """Names, folders and moments do not show, and a bundle packed again is the same."""
    one, other = write_release(tmp_path / "one"), write_release(tmp_path / "other")
    other.calibration.rename(other.calibration.with_name("z.json"))
    tars = [tmp_path / f"{name}.tar" for name in ("one", "other", "again")]
    build_bundle(one.path, tars[0], {})
    build_bundle(other.path, tars[1], {})
    build_bundle(tars[0], tars[2], {})
    assert tars[0].read_bytes() == tars[1].read_bytes() == tars[2].read_bytes()


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_bundle_is_never_changed(tmp_path: Path, name: str) -> None:
    """Building it again is well; building another in its place is refused and leaves it whole."""
    out = tmp_path / name
    one = write_release(tmp_path / "one")
    loaded = build_bundle(one.path, out, {})
    assert build_bundle(one.path, out, {}) == loaded
    with pytest.raises(ConfigError, match=r"a bundle is never changed$"):
        build_bundle(write_release(tmp_path / "other", depth=20).path, out, {})
    assert load_release(out, {}).digest == loaded.digest


def test_a_folder_with_anything_in_it_is_not_built_into(tmp_path: Path) -> None:
    """Files of others stay; an empty folder becomes the bundle."""
    written = write_release(tmp_path)
    full, empty, file = tmp_path / "full", tmp_path / "empty", tmp_path / "file"
    full.mkdir()
    (full / "mine").write_bytes(b"")
    empty.mkdir()
    file.write_bytes(b"")
    with pytest.raises(ConfigError, match="holds something else"):
        build_bundle(written.path, full, {})
    with pytest.raises(ConfigError, match=r"it is there and is no folder$"):
        build_bundle(written.path, file, {})
    build_bundle(written.path, empty, {})
    assert load_bundle(empty, {}).calibration is not None


def test_of_a_folder_that_is_no_bundle_nothing_is_read(tmp_path: Path) -> None:
    """A mistyped folder may hold more than there is memory."""
    full = tmp_path / "full"
    full.mkdir()
    with (full / "disk.img").open("wb") as file:
        file.truncate(2**42)
    with pytest.raises(ConfigError, match="holds something else"):
        build_bundle(write_release(tmp_path).path, full, {})


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The error names the place."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"cannot be written: (FileExistsError|NotADirectoryError)$"):
        build_bundle(write_release(tmp_path).path, tmp_path / "file" / "bundle.tar", {})


@pytest.mark.parametrize("what", ["fitted", "certificate", "report"])
def test_a_bundle_is_whole_or_not_made(tmp_path: Path, what: str) -> None:
    """An artefact that the release names and nobody has ends the building, and nothing is left behind."""
    written = write_release(tmp_path)
    (tmp_path / "calibration" / f"{what}.json").unlink()
    with pytest.raises(ConfigError, match="no file has this digest"):
        build_bundle(written.path, tmp_path / "out" / "bundle", {})
    assert not (tmp_path / "out").exists()


def test_evidence_is_json(tmp_path: Path) -> None:
    """Any other file is not packed."""
    content = b"no json"
    written = write_release(tmp_path, evidence={"report": artefact_digest(content)})
    (tmp_path / "calibration" / "report.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"not JSON$"):
        build_bundle(written.path, tmp_path / "bundle", {})


def test_variables_stay_unexpanded(tmp_path: Path) -> None:
    """A bundle is built without the variables that it names, and holds none of their values."""
    stage = {"adapter": "tei", "url": "${SERVER}", "model": "m", "engine": "tei/1.9"}
    changes: dict[str, Any] = {"stages": {"small": stage}, "escalation": "none", "evidence": {}}
    written = write_release(tmp_path, **changes)
    build_bundle(written.path, tmp_path / "one.tar", {})
    build_bundle(written.path, tmp_path / "other.tar", {"SERVER": "http://kingfisher.test"})
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "other.tar").read_bytes()
    with pytest.raises(ConfigError, match="SERVER is not set"):
        load_bundle(tmp_path / "one.tar", {})


_LISTS = st.lists(st.sampled_from(("bm25", "dense", "splade")), max_size=3, unique=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=25)
@given(channels=_LISTS, depth=st.integers(10, 200), top_m=st.integers(1, 10), tar=st.booleans(), weight=st.floats(0, 3))
def test_what_is_built_verifies(
    tmp_path_factory: pytest.TempPathFactory, *, channels: list[str], depth: int, top_m: int, tar: bool, weight: float
) -> None:
    """Any sound release comes back from its bundle as it was, under its digest, and passes every check."""
    folder = tmp_path_factory.mktemp("release")
    artefact = artefact_for(channels=channels, channel_weight=weight)
    rule = {"kind": "static-fused", "top_m": top_m, "safe_top_m": top_m}
    data = {"escalation": rule | {"calibration": artefact_digest(artefact_bytes(artefact))}, "depth": depth}
    written = write_release(folder, artefact, **data)
    out = folder / ("bundle.tar" if tar else "bundle")
    loaded = build_bundle(written.path, out, {})
    done = verify(out, {}, loaded.digest)
    assert done.findings == ()
    assert done.loaded == loaded == load_release(written.path, {})
    assert done.calibration is not None
    assert done.calibration.artefact == artefact


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, str]:
    """Give a tar of a sound release, its bytes and its digest."""
    folder = tmp_path_factory.mktemp("packed")
    loaded = build_bundle(write_release(folder, scripted_artefact()).path, folder / "bundle.tar", {})
    return folder, (folder / "bundle.tar").read_bytes(), loaded.digest


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_an_altered_byte_is_refused_or_alters_nothing(packed: tuple[Path, bytes, str], data: st.DataObject) -> None:
    """Under its digest a changed tar fails, or holds the same release and the same calibration: padding, a comment."""
    folder, whole, digest = packed
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[position] ^ data.draw(st.integers(1, 255))
    path = folder / "altered.tar"
    path.write_bytes(whole[:position] + bytes([flipped]) + whole[position + 1 :])
    try:
        done = verify(path, {}, digest)
    except ConfigError:
        return
    if done.passes(strict=False):
        sound = verify(folder / "bundle.tar", {}, digest)
        assert done.loaded.written == sound.loaded.written
        assert done.calibration is not None
        assert sound.calibration is not None
        assert done.calibration.artefact == sound.calibration.artefact
