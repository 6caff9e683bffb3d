"""Cores: no more threads than the container may keep busy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cascade.stages.cores import cpu_instructions, has_int8_instructions, usable_cores

_MINE = len(os.sched_getaffinity(0))


def write(folder: Path, **files: str) -> None:
    """Write the files of a group; a double underscore in a name is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="ascii")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    """Give a membership file that says nothing yet."""
    path = tmp_path / "membership"
    path.write_text("0::/\n", encoding="ascii")
    return path


@pytest.mark.parametrize(
    ("told", "cores"),
    [
        ("max 100000\n", _MINE),
        ("100000 100000\n", 1),
        ("150000 100000\n", 1),
        ("50000 100000\n", 1),
        ("99900000 100000\n", _MINE),
        ("", _MINE),
        ("junk", _MINE),
        ("100000 0\n", _MINE),
    ],
)
def test_a_quota_of_version_2_bounds_the_cores(tmp_path: Path, membership: Path, told: str, cores: int) -> None:
    """Whole cores of the quota count, at least one; what cannot be read bounds nothing."""
    write(tmp_path / "cgroup", cpu__max=told)
    assert usable_cores(tmp_path / "cgroup", membership) == cores


@pytest.mark.parametrize(("quota", "cores"), [("100000", 1), ("-1", _MINE), ("999900000", _MINE)])
def test_a_quota_of_version_1_bounds_the_cores(tmp_path: Path, membership: Path, quota: str, cores: int) -> None:
    """The controller's own folder tells quota and period; minus one is no quota."""
    write(tmp_path / "cgroup" / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert usable_cores(tmp_path / "cgroup", membership) == cores


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        ("0::/pod/inner", "pod", {"cpu__max": "100000 100000"}),
        ("0::/pod/inner", "pod/inner", {"cpu__max": "100000 100000"}),
        ("4:cpu,cpuacct:/pod/inner", "cpu/pod", {"cpu__cfs_quota_us": "100000", "cpu__cfs_period_us": "100000"}),
    ],
)
def test_the_groups_above_count_too(
    tmp_path: Path, membership: Path, line: str, folder: str, files: dict[str, str]
) -> None:
    """A limit on a pod holds for each container in it."""
    membership.write_text(f"9:cpuset:/elsewhere\n{line}\nodd\n", encoding="ascii")
    write(tmp_path / "cgroup" / folder, **files)
    assert usable_cores(tmp_path / "cgroup", membership) == 1


def test_without_groups_affinity_alone_counts(tmp_path: Path) -> None:
    """A system without any of these files bounds nothing."""
    assert usable_cores(tmp_path / "none", tmp_path / "nothing") == _MINE


@pytest.mark.parametrize(
    ("told", "instructions", "has_int8"),
    [
        (
            "processor\t: 0\nflags\t\t: fpu avx2 avx512_vnni\n\nprocessor\t: 1\nflags\t\t: fpu\n",
            {"fpu", "avx2", "avx512_vnni"},
            True,
        ),
        ("flags\t\t: fpu avx2\n", {"fpu", "avx2"}, False),
        ("processor\t: 0\nFeatures\t: fp asimd asimddp\n", {"fp", "asimd", "asimddp"}, True),
        ("model name\t: flags\n", None, False),
    ],
)
def test_instructions_are_those_of_the_first_core(
    tmp_path: Path, told: str, instructions: set[str] | None, has_int8: bool
) -> None:
    """They are read as Linux names them on x86 and ARM; what is not told is not known, and counts as not there."""
    (tmp_path / "cpuinfo").write_text(told, encoding="ascii")
    found = cpu_instructions(tmp_path / "cpuinfo")
    assert found == instructions
    assert has_int8_instructions(found) is has_int8


def test_instructions_are_not_known_where_they_cannot_be_read(tmp_path: Path) -> None:
    """Another system than Linux has no such file."""
    assert cpu_instructions(tmp_path / "none") is None
