"""A restart goes on from what was kept: the stable release, the candidate at its step, and what was turned down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.history import Entry, Happened, Remembered, StateFile
from cascade.stages.probe import Probe, Verdict
from cascade.testing.clock import run_virtual
from cascade.types import StageName
from tests.rollout.desk_fakes import FakeController, FakeKeeps, Setup, write_release
from tests.rollout.desk_lives import life

_AWAY = Probe(Verdict.FAILED, "connect", 1.0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_candidate_goes_on_from_its_step(tmp_path: Path, killed: bool) -> None:
    """After a restart the same release has the share of the step where it was, by the state that was kept of it."""
    keeps, since = FakeKeeps(), []

    async def first(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.ADVANCE])
        since.append((await setup.desk.start("r2"))["candidate"]["activated_at"])
        await asyncio.sleep(15)
        assert setup.traffic.share == 0.25

    async def second(setup: Setup) -> None:
        await asyncio.sleep(0.5)
        assert (setup.traffic.stable.name, setup.traffic.share) == ("r1", 0.25)
        assert setup.restored == [{"step": 1, "n": 0}]
        status = setup.desk.status()
        assert (status["state"], status["step"]) == ("running", 1)
        assert [status["candidate"]["activated_at"]] == since

    life(tmp_path, keeps, first, killed=killed)
    setup = life(tmp_path, keeps, second, killed=killed)
    assert setup.happened() == ["served", "started", "advanced", "resumed"]


def test_a_release_that_was_rolled_back_is_not_tried_after_a_restart(tmp_path: Path) -> None:
    """The source still names it; it was dealt with."""
    keeps = FakeKeeps()

    async def first(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.ROLL_BACK])
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(3)

    async def second(setup: Setup) -> None:
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(60)
        assert setup.traffic.candidate is None
        assert setup.desk.status()["refused"]["step"] == "rolled_back"

    life(tmp_path, keeps, first, killed=False)
    assert life(tmp_path, keeps, second, killed=True).happened() == ["served", "started", "rolled_back"]


def test_a_candidate_whose_server_is_away_after_a_restart_is_tried_again(tmp_path: Path) -> None:
    """It is refused for now; what the source names is brought in again once the server answers."""
    keeps = FakeKeeps()

    async def first(setup: Setup) -> None:
        setup.write("r2", probe="enforce")
        setup.source.say(setup.known["r2"])
        await asyncio.sleep(0.5)

    life(tmp_path, keeps, first, killed=True)

    async def play() -> None:
        setup = Setup(tmp_path, keeps)
        stored = setup.write("r2", {"probes": [{StageName.SMALL: _AWAY}]}, probe="enforce")
        loop = asyncio.create_task(setup.desk.run())
        setup.source.say(stored)
        await asyncio.sleep(8)
        assert setup.outcomes == ["probe"]
        setup.options[stored.digest] = {}
        await asyncio.sleep(60)
        assert setup.outcomes == ["probe", "probe", "swapped"]
        assert setup.traffic.candidate is not None
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()

    run_virtual(play())


def test_a_start_that_serves_the_candidate_has_no_rollout(tmp_path: Path) -> None:
    """Where the stable release could not be served and the candidate was, there is nothing to go on with."""
    keeps = FakeKeeps()

    async def first(setup: Setup) -> None:
        await setup.desk.start("r2")

    life(tmp_path, keeps, first, killed=True)

    async def play() -> None:
        files = Setup(tmp_path)
        setup = Setup(tmp_path, keeps, serves=files.write("r2"))
        loop = asyncio.create_task(setup.desk.run())
        await asyncio.sleep(3)
        status = setup.desk.status()
        assert (status["state"], status["candidate"], status["stable"]["release"]) == ("idle", None, "r2")
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()

    run_virtual(play())


@pytest.mark.parametrize("ended", ["completed", "aborted"])
def test_how_a_rollout_ended_is_not_told_of_the_release_that_settings_name_since(tmp_path: Path, ended: str) -> None:
    """What completed decides no more, or what was aborted decides all traffic: neither is how it stands."""
    keeps = FakeKeeps()

    async def first(setup: Setup) -> None:
        await setup.desk.start("r2", at_once=ended == "completed")
        if ended == "aborted":
            await setup.desk.abort()
        assert setup.desk.status()["state"] == ended

    life(tmp_path, keeps, first, killed=False)

    async def play(serves: str, state: str) -> None:
        setup = Setup(tmp_path, keeps, serves=Setup(tmp_path).write(serves))
        assert setup.desk.status()["state"] == state
        await setup.desk.aclose()

    same = "r2" if ended == "completed" else "r1"
    run_virtual(play(same, ended))
    if ended == "aborted":
        run_virtual(play("r3", "aborted"))  # what was aborted decides nothing, as before
        run_virtual(play("r2", "idle"))
    else:
        run_virtual(play("r3", "idle"))


def _entry(number: int) -> Entry:
    return Entry(at="t", what=Happened.STARTED, release=f"r{number}", digest=None)


def test_the_history_is_bounded() -> None:
    """The latest hundred things are kept."""
    remembered = Remembered()
    for number in range(150):
        remembered = remembered.with_entry(_entry(number))
    assert [entry.release for entry in remembered.history] == [f"r{number}" for number in range(50, 150)]


def test_the_state_file_is_replaced_whole(tmp_path: Path) -> None:
    """It reads back what was written, in a folder that need not be there, and leaves nothing else beside it."""
    file = StateFile(tmp_path / "state")
    assert file.read() is None
    remembered = Remembered().with_entry(_entry(1))
    file.write(Remembered())
    file.write(remembered)
    assert file.read() == remembered
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["rollout.json"]


@pytest.mark.parametrize("by_source", [False, True])
def test_a_candidate_begins_again_where_another_release_is_stable(tmp_path: Path, by_source: bool) -> None:
    """What it has shown, it has shown against the one before; who asked for it is still to be heard."""
    keeps = FakeKeeps()

    async def first(setup: Setup) -> None:
        setup.next_controller = lambda: FakeController(verdicts=[RolloutVerdict.ADVANCE])
        if by_source:
            setup.source.say(setup.known["r2"])
        else:
            await setup.desk.start("r2")
        await asyncio.sleep(15)
        assert setup.traffic.share == 0.25

    async def second() -> None:
        setup = Setup(tmp_path, keeps, serves=write_release(tmp_path, "r9"))
        loop = asyncio.create_task(setup.desk.run())
        if by_source:
            await asyncio.sleep(3)
            assert setup.traffic.candidate is None
            setup.source.say(setup.write("r2"))
        await asyncio.sleep(3)
        assert (setup.traffic.stable.name, setup.traffic.share, setup.restored) == ("r9", 0.01, [None])
        assert setup.happened()[-2:] == ["served", "started"]
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()

    life(tmp_path, keeps, first, killed=False)
    run_virtual(second())


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"{", "is not what this version writes"),
        (b'{"version": 2}', "is not what this version writes"),
        (b'{"unknown": 1}', "is not what this version writes"),
    ],
)
def test_a_state_that_cannot_be_read_says_so(tmp_path: Path, content: bytes, fault: str) -> None:
    """The fault names the file, and never what stands there."""
    (tmp_path / "rollout.json").write_bytes(content)
    with pytest.raises(ConfigError, match=fault):
        StateFile(tmp_path).read()


def test_what_an_end_in_the_middle_of_writing_left_is_cleared_away(tmp_path: Path) -> None:
    """Else each such end would take the place of one state for ever."""
    (tmp_path / ".rollout.json-killed").write_bytes(b"{")
    (tmp_path / "other").write_bytes(b"mine")
    assert StateFile(tmp_path).read() is None
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_state_folder_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    """Reading names the kind of fault; writing raises it, and leaves nothing aside."""
    (tmp_path / "rollout.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be read: IsADirectoryError"):
        StateFile(tmp_path).read()
    with pytest.raises(OSError, match=r"rollout\.json"):
        StateFile(tmp_path).write(Remembered())
    assert [path.name for path in tmp_path.iterdir()] == ["rollout.json"]


def test_a_refusal_says_its_step_and_why() -> None:
    """The words of the exception are those that an operator reads."""
    assert str(Refused(ActivationStep.PROBE, ("a", "b"))) == "refused at probe: a; b"
