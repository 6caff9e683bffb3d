"""A rollout that a pipeline waits for, until its end."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from cascade.cli.rollout_admin import NoAnswer, TurnedDown
from cascade.cli.rollout_watch import TimeOver, wait
from cascade.errors import ConfigError
from tests.cli.conftest import Rollout
from tests.server.admin_listener import Listener
from tests.server.rollout_desk import CANDIDATE, STABLE, idle, put_off, running, turned_down

Looked = dict[str, Any] | Exception
NAME, DIGEST = str(CANDIDATE["release"]), str(CANDIDATE["digest"])
_SERVES = idle(state="completed", stable=STABLE | {"release": NAME, "digest": DIGEST})
_WHY = "late: it is shown to be beyond its limit"


def _waited(looks: list[Looked], wanted: str = DIGEST, timeout_s: float | None = None) -> tuple[str, float]:
    """Wait on what looks give in turn; return what was written, and how long it took. Raises what `wait` does."""
    file, passed = io.StringIO(), [0.0]

    def look() -> dict[str, Any]:
        seen = looks.pop(0)
        if isinstance(seen, Exception):
            raise seen
        return seen

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    wait(
        look,
        Console(file=file, width=200),
        wanted,
        timeout_s,
        sleep=sleep,
        clock=lambda: passed[0],
        now=lambda: datetime(2026, 11, 30, 9, tzinfo=UTC),
    )
    return file.getvalue(), passed[0]


@pytest.mark.parametrize("wanted", [NAME, DIGEST])
def test_it_waits_until_the_release_decides_all_traffic(wanted: str) -> None:
    """Also over a restart of the sidecar, and while the source has not named it yet; each change is a line."""
    activating = running(state="activating", activation_step="probe")
    written, seconds = _waited([idle(), activating, running(), NoAnswer("gone"), running(), _SERVES], wanted)
    assert seconds == 5.0
    assert [line.split("  ", 1)[1] for line in written.splitlines()] == [
        "idle: no rollout is under way; r-2026-10 decides all traffic",
        "activating: r-2026-11 is being activated, at the step probe; r-2026-10 decides all traffic",
        "running: r-2026-11 decides 5% of the traffic, r-2026-10 the rest",
        "no news: gone; asked again",
        "running: r-2026-11 decides 5% of the traffic, r-2026-10 the rest",
        "completed: r-2026-11 decides all traffic",
    ]


@pytest.mark.parametrize(
    ("step", "said"),
    [("rolled_back", "rolled back"), ("aborted", "aborted"), ("replaced", "replaced"), ("probe", "probe")],
)
def test_a_release_that_was_turned_down_is_told_with_its_reasons(step: str, said: str) -> None:
    """Whatever came after it."""
    refused = turned_down()["refused"] | {"step": step}
    for after in (idle(state="refused", refused=refused), idle(state="completed", refused=refused)):
        with pytest.raises(TurnedDown) as raised:
            _waited([running(), after])
        assert raised.value.what == f"r-2026-11 was turned down ({said}) at 2026-11-30 09:25:00"
        assert raised.value.why == (_WHY,)


@pytest.mark.parametrize("again", [running(refused=turned_down()["refused"]), turned_down(digest="d", release="other")])
def test_what_was_turned_down_before_and_is_tried_again_is_waited_for(again: dict[str, Any]) -> None:
    """So is a release beside another that was turned down; one that serves by now does."""
    _, seconds = _waited([again, _SERVES | {"refused": turned_down()["refused"]}])
    assert seconds == 1.0


def test_a_stable_release_of_the_same_name_is_not_the_candidate() -> None:
    """Of a name that is used again the one that is tried counts; by digest there is no doubt."""
    alike = running(stable=STABLE | {"release": NAME})
    with pytest.raises(TimeOver):
        _waited([alike] * 3, NAME, timeout_s=2.0)
    with pytest.raises(TimeOver):
        _waited([idle(stable=STABLE | {"release": NAME})] * 3, DIGEST, timeout_s=2.0)


@pytest.mark.parametrize(("refused_at", "status"), [("08:30", 1), ("07:30", 0)])
def test_of_a_name_that_is_used_again_the_last_to_end_counts(
    rollout: Rollout, listener: Listener, refused_at: str, status: int
) -> None:
    """The stable release has it, and another content that was turned down: since then, or before."""
    at = f"2026-11-30T{refused_at}:00.000+00:00"
    listener.desk.told = turned_down(at=at) | {"stable": STABLE | {"release": NAME}}
    assert rollout("wait", NAME).status == status
    assert rollout("wait", DIGEST).status == 1
    assert rollout("wait", str(STABLE["digest"])).status == 0


def test_a_refusal_that_is_tried_again_by_itself_is_waited_for() -> None:
    """That a server did not answer says nothing of the release; also over a restart, before the source was looked at."""
    restarted = put_off()
    restarted["desired"] |= {"release": None, "digest": None, "tried_again_at": None}
    _, seconds = _waited([running(), put_off(), restarted, running(), _SERVES])
    assert seconds == 4.0
    for ends in ({"digest": "sha256:" + "d" * 64}, {"pending": False, "tried_again_at": None}):
        ended = put_off()
        ended["desired"] |= ends
        with pytest.raises(TurnedDown) as raised:
            _waited([put_off(), ended])
        assert raised.value.why == ("small: no answer",)


def test_a_name_that_the_source_gives_to_another_content_is_that_of_the_stable_release_no_more() -> None:
    """It is waited for what the source names, although the release that serves is called alike."""
    alike = idle(stable=STABLE | {"release": NAME}, desired=running()["desired"] | {"pending": True})
    _, seconds = _waited([alike, alike, _SERVES], NAME)
    assert seconds == 2.0
    assert _waited([alike], str(STABLE["digest"]))[1] == 0.0


def test_a_log_says_what_a_release_waits_for_that_does_not_come() -> None:
    """That what the source names cannot be used, when a refusal is tried again, that the state is not kept."""
    unusable = idle(
        desired=put_off()["desired"] | {"digest": None, "pending": False, "fault": "not signed\x1b"}, state_fault="full"
    )
    written, _ = _waited([unusable, put_off(), running(), _SERVES])
    kept = "the state of rollouts cannot be kept, a restart goes on from what was kept last: full"
    assert [line.split("  ", 1)[1] for line in written.splitlines()] == [
        f"idle: no rollout is under way; r-2026-10 decides all traffic; what is desired cannot be used: not signed?; {kept}",
        "refused: r-2026-11 was refused at probe; r-2026-10 decides all traffic; r-2026-11 is tried again at 2026-11-30 09:25:30",
        "running: r-2026-11 decides 5% of the traffic, r-2026-10 the rest",
        "completed: r-2026-11 decides all traffic",
    ]


def test_time_is_over() -> None:
    """After the seconds that were given, told with them; without an answer at the end, that is told."""
    with pytest.raises(TimeOver, match=r"^r-2026-11 does not decide all traffic after 3 min$"):
        _waited([running()] * 181, NAME, timeout_s=180.0)
    with pytest.raises(NoAnswer, match="gone"):
        _waited([running(), NoAnswer("gone"), NoAnswer("gone")], timeout_s=2.0)


def test_what_a_later_try_does_not_mend_ends_it_at_once() -> None:
    """A wrong key, say."""
    with pytest.raises(ConfigError, match="not known"):
        _waited([ConfigError("the key is not known")])


def test_exit_statuses(rollout: Rollout, listener: Listener) -> None:
    """0 where it serves, 1 with the reasons where it was turned down, 3 where the time is over, 2 without an answer."""
    listener.desk.told = _SERVES
    done = rollout("wait", NAME)
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith("  completed: r-2026-11 decides all traffic\n")
    listener.desk.told = turned_down()
    done = rollout("wait", NAME, "--timeout", "60")
    assert done.status == 1
    assert done.err == f"cascade: r-2026-11 was turned down (rolled back) at 2026-11-30 09:25:00\n  {_WHY}\n"
    listener.desk.told = running()
    done = rollout("wait", DIGEST, "--timeout", "0")
    assert (done.status, done.err) == (3, f"cascade: {DIGEST} does not decide all traffic after 0 s\n")
    away = rollout("wait", NAME, "--timeout", "0", "--admin", "http://127.0.0.1:9")
    assert (away.status, away.err) == (2, "cascade: http://127.0.0.1:9 does not answer: ConnectError\n")
    assert "no news: http://127.0.0.1:9 does not answer: ConnectError; asked again\n" in away.out
    assert rollout("wait", NAME, "--timeout", "-1").status == 2


def test_what_is_told_does_nothing_to_a_terminal(rollout: Rollout, listener: Listener) -> None:
    """Neither what was asked for, nor what the sidecar says."""
    hostile = "\x1b[2Jr"
    listener.desk.told = turned_down(release=hostile, why=[hostile], step=hostile, at=hostile)
    done = rollout("wait", DIGEST)
    assert done.status == 1
    assert "\x1b" not in done.out + done.err
    listener.desk.told = idle()
    assert "\x1b" not in rollout("wait", hostile, "--timeout", "0").err
