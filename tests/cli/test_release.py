"""``cascade release``."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from cascade.rollout.load import default_release_path, load_release
from tests.cli.conftest import Command
from tests.rollout.arrange import artefact_for, stage_data, write_release


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_build_makes_a_bundle_that_verifies_strictly(command: Command, tmp_path: Path, name: str) -> None:
    """It prints where it is and its digest, and verify takes that digest."""
    written = write_release(tmp_path)
    out = str(tmp_path / name)
    digest = load_release(written.path, {}).digest
    built = command("release", "build", str(written.path), "--out", out)
    assert (built.status, built.out, built.err) == (0, f"{out}: release r1, {digest}\n", "")
    verified = command("release", "verify", "--strict", out, "--digest", digest)
    assert (verified.status, verified.out) == (0, f"release r1, {digest}: passes --strict\n")


def test_build_does_not_change_a_bundle(command: Command, tmp_path: Path) -> None:
    """Another release in its place is exit 2 and one line."""
    out = str(tmp_path / "bundle.tar")
    command("release", "build", str(write_release(tmp_path / "one").path), "--out", out)
    before = Path(out).read_bytes()
    done = command("release", "build", str(write_release(tmp_path / "other", depth=20).path), "--out", out)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"cascade: {out}: it is there and holds something else; a bundle is never changed\n"
    assert Path(out).read_bytes() == before


def test_verify_lets_warnings_pass_unless_strict(command: Command, tmp_path: Path) -> None:
    """Missing evidence is a warning: exit 0, and 1 with --strict."""
    path = str(write_release(tmp_path, evidence=None).path)
    digest = load_release(Path(path), {}).digest
    lines = ["warning: evidence: it names no certificate", "warning: evidence: it names no report"]
    loose, strict = command("release", "verify", path), command("release", "verify", path, "--strict")
    assert (loose.status, loose.out.splitlines()) == (0, [*lines, f"release r1, {digest}: passes"])
    assert (strict.status, strict.out.splitlines()) == (1, [*lines, f"release r1, {digest}: does not pass --strict"])


def test_verify_of_a_release_with_an_error_is_exit_1(command: Command, tmp_path: Path) -> None:
    """A benefit that was looked for and not found does not pass, strict or not."""
    path = str(write_release(tmp_path, artefact_for(benefit="none-found")).path)
    done = command("release", "verify", path)
    assert done.status == 1
    assert done.out.startswith("error: it escalates, and by judgements the large stage does not help")


@pytest.mark.parametrize("action", ["show", "verify"])
@pytest.mark.parametrize("content", [None, b"depth: [", b"release: r1\n"])
def test_what_is_no_release_is_exit_2(command: Command, tmp_path: Path, action: str, content: bytes | None) -> None:
    """One line on stderr names the file."""
    path = tmp_path / "release.yaml"
    if content is not None:
        path.write_bytes(content)
    done = command("release", action, str(path))
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith(f"cascade: release {path}: ")


def test_a_tar_that_leads_outside_is_exit_2(command: Command, tmp_path: Path) -> None:
    """It is refused before anything is read of it."""
    path = tmp_path / "bundle.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("../release.yaml")
        tar.addfile(member, io.BytesIO())
    done = command("release", "verify", str(path))
    assert (done.status, done.out) == (2, "")
    assert done.err == f"cascade: release {path}: entry 0: its name is none that a bundle has\n"


def test_show_says_what_a_release_does_without_its_variables(command: Command, tmp_path: Path) -> None:
    """No server is needed, and no address shown."""
    stages = {"small": stage_data("small", url="${SMALL}"), "large": stage_data("large")}
    done = command("release", "show", str(write_release(tmp_path, stages=stages).path))
    assert (done.status, done.err) == (0, "")
    assert "escalation     candidates worth at least 0.002 of the large order's gain at 10" in done.out
    assert "fitted on 100 queries" in done.out
    assert "http" not in done.out


def test_show_takes_a_release_that_ships(command: Command) -> None:
    """The default release has a description."""
    done = command("release", "show", str(default_release_path()))
    assert done.status == 0
    assert done.out.startswith("release        default-")


def test_diff_of_one_policy_is_exit_0(command: Command, tmp_path: Path) -> None:
    """Another name and no evidence is no change for traffic; both digests are shown."""
    one, other = write_release(tmp_path / "one"), write_release(tmp_path / "other", release="r2", evidence=None)
    done = command("release", "diff", str(one.path), str(other.path))
    loaded = [load_release(written.path, {}) for written in (one, other)]
    assert done.status == 0
    assert done.out.splitlines() == [
        f"- r1, release {loaded[0].digest}, policy {loaded[0].policy_digest}",
        f"+ r2, release {loaded[1].digest}, policy {loaded[0].policy_digest}",
        "nothing changes for traffic",
    ]


def test_diff_of_two_policies_is_exit_1(command: Command, tmp_path: Path) -> None:
    """Each change is a line; a file and a bundle can be compared."""
    one, other = write_release(tmp_path / "one"), write_release(tmp_path / "other", depth=20)
    bundle = str(tmp_path / "bundle")
    command("release", "build", str(one.path), "--out", bundle)
    done = command("release", "diff", bundle, str(other.path))
    assert done.status == 1
    assert done.out.splitlines()[2:] == ["depth: the first 50 candidates -> the first 20 candidates"]
    assert command("release", "diff", bundle, str(tmp_path / "none.yaml")).status == 2


def test_validate_says_that_the_safe_mode_would_serve(command: Command, tmp_path: Path) -> None:
    """A release whose calibration is missing is valid, and serves without it."""
    written = write_release(tmp_path)
    assert command("config", "validate", "--release", str(written.path)).err == ""
    written.calibration.unlink()
    done = command("config", "validate", "--release", str(written.path))
    assert done.status == 0
    assert done.err.startswith("cascade: the safe mode would serve: artefact sha256:")
