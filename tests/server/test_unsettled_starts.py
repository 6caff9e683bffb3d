"""A release whose process is killed again and again, before its start has settled, gives way to one that was good."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cascade.rollout.history import Happened, KeptCandidate, StateFile
from cascade.rollout.unsettled import UnsettledStarts
from cascade.server.rollout_start import begun
from cascade.server.settings import Settings
from tests.server.starts import GONE, LeftState, events, passed_over, serving, write


def _killed(folder: Path, digest: str, times: int) -> None:
    """Leave behind what so many processes do that were killed before their start with a release had settled."""
    for _ in range(times):
        UnsettledStarts(folder / "state" / "releases").begin(digest)


@pytest.mark.parametrize("watched", [True, False])
async def test_a_stable_release_that_kills_its_process_again_and_again_leaves_the_last_good_one(
    tmp_path: Path, log: io.BytesIO, watched: bool
) -> None:
    """After three starts that did not settle; it is told as one that cannot be served, and does not come back by itself."""
    state = LeftState(tmp_path)
    good = state.serves("r1")
    bad = state.serves("r2")
    assert write(tmp_path / "release.yaml", "r2") == bad
    _killed(tmp_path, bad, 2)
    async with serving(tmp_path, watch_release=watched) as (service, _):
        assert service.traffic.stable.name == "r2"
    _killed(tmp_path, bad, 3)
    async with serving(tmp_path, watch_release=watched) as (service, desk):
        assert service.traffic.stable.name == "r1"
        assert passed_over(service) == [("r2", "start")]
        told = desk.status()
        assert (told["stable"]["digest"], told["refused"]["digest"], told["refused"]["step"]) == (good, bad, "start")
        assert told["refused"]["why"] == [
            "the process was killed 3 times in a row before it had served for 60 s with it"
        ]
        assert (told["state"], desk.history()[1]["what"]) == ("refused", "refused")
    (event,) = events(log, "a release cannot be served at this start")
    assert (event["level"], event["release"]) == ("error", "r2")
    async with serving(tmp_path, watch_release=watched) as (service, _):
        assert service.traffic.stable.name == "r1"
        assert passed_over(service) == []


@pytest.mark.parametrize("other", ["none", "taken back", "killed too", "gone"])
async def test_a_release_that_kills_its_process_serves_where_no_good_one_can(
    tmp_path: Path, log: io.BytesIO, other: str
) -> None:
    """It may have been something else, and nothing would answer else; no one tells then that it does not serve."""
    state = LeftState(tmp_path)
    if other != "none":
        before = state.serves("r1", **(GONE if other == "gone" else {}))
    stable = state.serves("r2")
    if other == "taken back":
        state.took(Happened.ROLLED_BACK, "r1", before)
    if other == "killed too":
        _killed(tmp_path, before, 3)
    write(tmp_path / "release.yaml", "r2")
    _killed(tmp_path, stable, 3)
    refused = [("r1", "start")] if other == "gone" else []
    async with serving(tmp_path, watch_release=True) as (service, desk):
        assert service.traffic.stable.name == "r2"
        assert passed_over(service) == refused
        assert [entry["release"] for entry in desk.history() if entry["what"] == "refused"][:1] == [
            name for name, _ in refused
        ]
    assert ("r1", "start") in refused or events(log, "a release cannot be served at this start") == []


async def test_starts_count_that_end_before_a_candidate_could_be_given_up(tmp_path: Path) -> None:
    """What it may have ended is forgotten once: else a stable release that kills its process by now would serve for ever."""
    state = LeftState(tmp_path)
    good = state.serves("r1")
    stable = state.serves("r2")
    write(tmp_path / "release.yaml", "r2")
    _killed(tmp_path, stable, 5)
    _left_trying(tmp_path, attempts=2)
    starts, served = state.store.folder / "starts.json", []
    for _ in range(4):
        async with begun(Settings(release=tmp_path / "release.yaml", state_folder=tmp_path / "state"), {}) as start:
            served.append(start.choices.bundle.loaded.digest)
            left = starts.read_bytes()
        starts.write_bytes(left)  # it was killed
    assert served == [stable, stable, stable, good]


def _left_trying(folder: Path, *, attempts: int) -> None:
    """Leave behind a candidate under which the process was killed so often."""
    file = StateFile(folder / "state")
    before = file.read()
    assert before is not None
    candidate = KeptCandidate(release="r9", digest="sha256:" + "9" * 64, path="r9", asked_at="t", attempts=attempts)
    file.write(before.model_copy(update={"candidate": candidate}))


@pytest.mark.parametrize(("attempts", "counted"), [(None, 2), (1, 2), (2, 1)])
async def test_a_start_is_counted_from_before_its_stages_are_made_until_it_ends(
    tmp_path: Path, attempts: int | None, counted: int
) -> None:
    """Whoever is killed in between leaves it counted, whatever is tried beside it; what is given up for it takes the counts along."""
    state = LeftState(tmp_path)
    stable = state.serves("r1")
    write(tmp_path / "release.yaml", "r1")
    _killed(tmp_path, stable, 1)
    if attempts is not None:
        _left_trying(tmp_path, attempts=attempts)
    async with begun(Settings(release=tmp_path / "release.yaml", state_folder=tmp_path / "state"), {}):
        assert UnsettledStarts(state.store.folder).count(stable) == counted
    assert UnsettledStarts(state.store.folder).count(stable) == 0
