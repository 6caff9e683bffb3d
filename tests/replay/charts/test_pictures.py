"""Pictures of a report's charts."""

from __future__ import annotations

import struct
from copy import deepcopy
from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.replay.charts.pictures import FILES, write_pngs
from tests.replay.reported import whole_report


def test_pictures_have_names_that_never_change(tmp_path: Path) -> None:
    """A folder that is not there is made; each file is a PNG of the size that its panels ask for, at twice that."""
    folder = tmp_path / "pictures"
    assert write_pngs(whole_report(), folder) == [*FILES]
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    for name, panels in {"curves.png": 2, "regret.png": 1, "reliability.png": 1, "depth-sweep.png": 3}.items():
        data = (folder / name).read_bytes()
        width, _ = struct.unpack(">II", data[16:24])
        assert data.startswith(b"\x89PNG")
        assert panels * 440 * 2 < width < panels * 640 * 2


def test_what_cannot_be_drawn_leaves_no_older_picture(tmp_path: Path) -> None:
    """A picture of an earlier report is not taken for one of this."""
    told = deepcopy(whole_report())
    told["reliability"] = {"rows": [], "reasons": {"rows": "no calibration was given"}}
    (tmp_path / "reliability.png").write_bytes(b"old")
    (tmp_path / "other.png").write_bytes(b"theirs")
    assert write_pngs(told, tmp_path) == ["curves.png", "regret.png", "depth-sweep.png"]
    assert not (tmp_path / "reliability.png").exists()
    assert (tmp_path / "other.png").read_bytes() == b"theirs"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """In one sentence."""
    (tmp_path / "curves.png").mkdir()
    with pytest.raises(ConfigError, match=r"--png .*: cannot be written: IsADirectoryError"):
        write_pngs(whole_report(), tmp_path)
