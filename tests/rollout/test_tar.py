"""Bundles as a tar: bytes that follow from the contents, and reading what anybody may have written."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.rollout import tar as module
from cascade.rollout.tar import LARGEST_TAR, read_tar, tar_bytes

_NAME = f"artifacts/{'ab' * 32}.json"
_CONTENTS = {"release.yaml": b"release: r1\n", _NAME: b"{}"}


def _write(folder: Path, data: bytes) -> Path:
    path = folder / "bundle.tar"
    path.write_bytes(data)
    return path


def _tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar as another program would write it."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=form) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.binary(min_size=32, max_size=32).map(lambda raw: f"artifacts/{raw.hex()}.json"), st.binary(max_size=2000),
        max_size=4,
    ),
    st.binary(max_size=2000),
)  # fmt: skip
def test_what_is_written_is_read(tmp_path: Path, artefacts: dict[str, bytes], release: bytes) -> None:
    """Every bundle's files come back as they were, and their order does not show in the bytes."""
    contents = {"release.yaml": release, **artefacts}
    data = tar_bytes(contents)
    assert read_tar(_write(tmp_path, data)) == contents
    assert tar_bytes(dict(reversed(contents.items()))) == data


def test_what_could_not_be_read_again_is_not_written() -> None:
    """Artefacts that are small enough by themselves can be too much together."""
    with pytest.raises(ConfigError, match=f"larger than {LARGEST_TAR} bytes as a tar"):
        tar_bytes({f"artifacts/{number:064x}.json": bytes(LARGEST_TAR // 2) for number in range(2)})


def test_a_tar_has_no_time_owner_or_compression() -> None:
    """What differs between machines and moments is left out."""
    with tarfile.open(fileobj=io.BytesIO(tar_bytes(_CONTENTS)), mode="r:") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(_CONTENTS)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}


def test_a_tar_of_a_folder_is_read_as_common_programs_write_it(tmp_path: Path) -> None:
    """``tar cf bundle.tar .`` has a dot before names and entries for folders."""
    data = _tar(
        (_member("./", tarfile.DIRTYPE), b""),
        (_member("./release.yaml"), b"a: 1\n"),
        (_member("./artifacts", tarfile.DIRTYPE), b""),
        (_member(f"./{_NAME}"), b"{}"),
    )
    assert read_tar(_write(tmp_path, data)) == {"release.yaml": b"a: 1\n", _NAME: b"{}"}


@pytest.mark.parametrize(
    "name",
    [
        "../release.yaml", "/release.yaml", "artifacts/../release.yaml", "artifacts/../../etc/passwd", "a/release.yaml",
        "release.yml", "RELEASE.YAML", "artifacts/x.json", f"{_NAME}\n", f"artifacts/{'AB' * 32}.json", ".", "", "././x",
    ],
)  # fmt: skip
def test_a_name_that_no_bundle_has_is_refused(tmp_path: Path, name: str) -> None:
    """Paths that lead outside are among them; the name is not repeated."""
    data = _tar((_member("release.yaml"), b"a: 1\n"), (_member(name), b"kingfisher"))
    with pytest.raises(ConfigError, match=r"entry 1: its name is none that a bundle has$"):
        read_tar(_write(tmp_path, data))
    assert list(tmp_path.parent.glob("release.yaml")) == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    """A link under a bundle's name would lead elsewhere."""
    data = _tar((_member("release.yaml", kind, "/etc/passwd"), b""))
    with pytest.raises(ConfigError, match=r"release\.yaml: not a plain file$"):
        read_tar(_write(tmp_path, data))


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    """A few bytes may stand for gigabytes of nothing."""
    member = _member("x")
    member.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "release.yaml",
        "GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,4", "GNU.sparse.numblocks": "1",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"header 0: it renames or resizes the entry behind it$"):
        read_tar(_write(tmp_path, _tar((member, b"abcd"))))
    with pytest.raises(ConfigError, match=r"release\.yaml: not a plain file$"):
        read_tar(_write(tmp_path, _tar((_member("release.yaml", tarfile.GNUTYPE_SPARSE), b""))))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
@pytest.mark.parametrize("filling", [b"1", b"9 path=", b"\0"])
def test_a_long_header_costs_no_more_than_its_length(tmp_path: Path, kind: bytes, filling: bytes) -> None:
    """With Python's reader one of a megabyte of digits takes a quarter of an hour, in which nothing else runs."""
    content = filling * (2**20 // len(filling))
    member = _member("././@Header", kind)
    member.size = len(content)
    data = member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512) + tar_bytes(_CONTENTS)
    try:
        read = read_tar(_write(tmp_path, data))
    except ConfigError:
        return
    assert (read, kind in {tarfile.XHDTYPE, tarfile.XGLTYPE}) == (_CONTENTS, True)


@pytest.mark.parametrize("key", ["path", "size", "GNU.sparse.name"])
def test_a_header_that_makes_another_entry_of_it_is_refused(tmp_path: Path, key: str) -> None:
    """Programs would disagree on what the bundle holds."""
    member = _member("release.yaml")
    member.pax_headers = {key: "1"}
    with pytest.raises(ConfigError, match=r"header 0: it renames or resizes the entry behind it$"):
        read_tar(_write(tmp_path, _tar((member, b"a"))))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.floats(0, 2**33),
    st.binary(max_size=2000),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10),
)
def test_what_python_writes_is_read(tmp_path: Path, form: int, mtime: float, content: bytes, owner: str) -> None:
    """In each format, with times of fractions and owners of any name, which need longer headers."""
    member = _member("release.yaml")
    member.mtime, member.uname = mtime, owner
    assert read_tar(_write(tmp_path, _tar((member, content), form=form))) == {"release.yaml": content}


def test_a_tar_without_its_end_is_refused(tmp_path: Path) -> None:
    """It may have been cut short between two entries."""
    data = tar_bytes(_CONTENTS)
    with pytest.raises(ConfigError, match="not a tar, or damaged"):
        read_tar(_write(tmp_path, data[: 2 * 1024]))


def test_a_file_given_twice_is_refused(tmp_path: Path) -> None:
    """Programs disagree on which of two counts."""
    data = _tar((_member("release.yaml"), b"a: 1\n"), (_member("./release.yaml"), b"a: 2\n"))
    with pytest.raises(ConfigError, match=r"release\.yaml: there twice$"):
        read_tar(_write(tmp_path, data))


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    """A bundle has few files."""
    members = [(_member(f"artifacts/{number:064x}.json"), b"{}") for number in range(70)]
    with pytest.raises(ConfigError, match=r"more than 64 entries$"):
        read_tar(_write(tmp_path, _tar(*members)))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_that_extend_others_count_too(tmp_path: Path, kind: bytes) -> None:
    """A tar can hold a hundred thousand of them, each of which is parsed."""
    members = [(_member("././@Header", kind), b"") for _ in range(70)]
    with pytest.raises(ConfigError, match=r"more than 64 entries$"):
        read_tar(_write(tmp_path, _tar(*members)))


def test_what_macos_keeps_beside_files_is_passed_over(tmp_path: Path) -> None:
    """Its tar puts the attributes of a file before it, as a file of its own."""
    names = ("./._release.yaml", "./release.yaml", "./artifacts/._a.json", f"./{_NAME}")
    read = read_tar(_write(tmp_path, _tar(*((_member(name), name.encode()) for name in names))))
    assert read == {"release.yaml": b"./release.yaml", _NAME: f"./{_NAME}".encode()}


def test_a_file_that_says_it_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    """Sizes are told before contents, and cost nothing to claim."""
    member = _member("release.yaml")
    member.size = 2**34
    with pytest.raises(ConfigError, match=r"release\.yaml: larger than \d+ bytes$"):
        read_tar(_write(tmp_path, member.tobuf(tarfile.GNU_FORMAT)))


def test_a_tar_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """It is not even read."""
    path = tmp_path / "bundle.tar"
    with path.open("wb") as file:
        file.truncate(module.LARGEST_TAR + 1)
    with pytest.raises(ConfigError, match="larger than"):
        read_tar(path)


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:700], lambda data: b"x" * 5000, lambda data: b"\x1f\x8b" + data],
    ids=["empty", "cut short", "no tar", "compressed"],
)
def test_what_is_no_whole_tar_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """The error tells the file and no more."""
    with pytest.raises(ConfigError, match="not a tar, or damaged"):
        read_tar(_write(tmp_path, damage(tar_bytes({"release.yaml": b"a" * 1000}))))


@pytest.mark.parametrize("where", ["behind the end", "in a header"])
def test_a_tar_with_more_than_can_be_read_is_refused(tmp_path: Path, where: str) -> None:
    """Python's reader takes a damaged header for the end of the archive; what stands behind is then not read."""
    data = bytearray(tar_bytes(_CONTENTS))
    if where == "behind the end":
        data += b"x"
    else:
        second = data.index(b"release.yaml", 512)
        data[second] ^= 1
    with pytest.raises(ConfigError, match="more after its last readable entry"):
        read_tar(_write(tmp_path, bytes(data)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_any_bytes_are_read_or_refused_and_nothing_else_happens(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever was done to a tar, the answer is files of a bundle's names or a ConfigError."""
    whole = bytearray(tar_bytes(_CONTENTS))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, 2047))] = data.draw(st.integers(0, 255))
    try:
        files = read_tar(_write(tmp_path, bytes(whole)))
    except ConfigError:
        return
    assert set(files) <= {"release.yaml"} | {name for name in files if name.startswith("artifacts/")}
