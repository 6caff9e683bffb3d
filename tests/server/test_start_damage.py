"""A start outlives what happened to the folder of what it keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cascade.rollout.history import KeptCandidate, Remembered, StateFile
from cascade.rollout.store import ReleaseStore
from cascade.server.rollout_start import StateWithStore, begun
from cascade.server.settings import Settings
from tests.server.starts import write


def _settings(folder: Path) -> Settings:
    return Settings(release=folder / "release.yaml", state_folder=folder / "state", watch_release=True)


async def test_a_candidate_is_found_in_a_state_folder_that_was_moved(tmp_path: Path) -> None:
    """A volume that is mounted elsewhere by now holds its bundle all the same."""
    write(tmp_path / "release.yaml", "r1")
    digest = write(tmp_path / "earlier" / "release.yaml", "r2")
    store = ReleaseStore(tmp_path / "state" / "releases")
    store.put(tmp_path / "earlier" / "release.yaml")
    candidate = KeptCandidate(release="r2", digest=digest, path=f"/no/such/{digest}.tar", asked_at="t")
    StateWithStore(StateFile(tmp_path / "state"), store).write(Remembered(candidate=candidate))
    async with begun(_settings(tmp_path), {}) as start:
        assert start.remembered.candidate == candidate.model_copy(update={"path": str(store.path(digest))})


@pytest.mark.parametrize("name", ["rollout.json", "releases/good.json", "releases/tags.json", "releases/starts.json"])
@pytest.mark.parametrize("what", ["pipe", "folder", "loop", "bytes"])
async def test_a_start_outlives_whatever_lies_in_the_place_of_what_it_keeps(
    tmp_path: Path, name: str, what: str
) -> None:
    """A pipe that nobody writes to, a folder, a link to itself, or bytes that are none of ours: as if it were not there."""
    write(tmp_path / "release.yaml", "r1")
    path = tmp_path / "state" / name
    path.parent.mkdir(parents=True)
    match what:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case _:
            path.write_bytes(b"\xff{")
    async with begun(_settings(tmp_path), {}) as start:
        assert start.choices.bundle.loaded.release.release == "r1"
