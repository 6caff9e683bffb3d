"""``cascade rollout``, against an admin listener on a real socket."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.bundle import build_bundle
from cascade.rollout.tar import parse_tar
from cascade.server.gate import open_access
from cascade.server.keys import hash_of
from cascade.telemetry.logs import configure_logging
from tests.cli.conftest import Command, Done, WriteRelease
from tests.server.admin_listener import Listener, admin_listener
from tests.server.rollout_desk import CANDIDATE, STABLE, entry, foreseen, guardrails, idle, running, turned_down

_NONE: Final[Mapping[str, str]] = {}


class Rollout(Protocol):
    """Run ``cascade rollout`` against the listener."""

    def __call__(self, *arguments: str, width: int = 80, variables: Mapping[str, str] = _NONE) -> Done:
        """Return how it ended."""
        ...


@pytest.fixture(scope="module")
def served() -> Iterator[Listener]:
    """Listen once for all tests."""
    with admin_listener() as made:
        yield made


@pytest.fixture
def listener(command: Command, served: Listener) -> Listener:
    """Give the listener with a desk that was asked nothing; its log is in memory: what the command prints is its own."""
    configure_logging("info", io.BytesIO())
    return served.afresh()


@pytest.fixture
def rollout(command: Command, listener: Listener) -> Rollout:
    """Give a function that runs the command at the listener, on a terminal of a width."""

    def run(*arguments: str, width: int = 80, variables: Mapping[str, str] = _NONE) -> Done:
        told = {"CASCADE_ADMIN_URL": listener.url, "COLUMNS": str(width), **variables}
        return command("rollout", *arguments, variables=told)

    return run


def _rows(done: Done) -> dict[str, list[str]]:
    """Return the cells of each line by its first."""
    return {line.split()[0]: line.split() for line in done.out.splitlines() if line.split()}


@pytest.mark.parametrize("width", [80, 200])
def test_status_shows_releases_times_and_guardrails(rollout: Rollout, listener: Listener, width: int) -> None:
    """Desired, stable and candidate with when they were asked for and activated, and every number of a guardrail."""
    listener.desk.told = running()
    done = rollout("status", width=width)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("running: r-2026-11 decides 5% of the traffic, r-2026-10 the rest\n")
    assert "steps: 1% (without evidence) -> [5%] -> 25% -> 100%" in done.out
    rows = _rows(done)
    day = ["2026-11-30"] if width == 200 else []
    letters = 64 if width == 200 else 8
    assert rows["desired"] == ["desired", "r-2026-11", "c" * letters, *day, "09:20:00", "-", "-"]
    assert rows["stable"] == ["stable", "r-2026-10", "95%", "a" * letters, "-", "-", *day, "08:00:00"]
    times = [part for time in ("09:00:00", "09:00:01", "09:00:03") for part in (*day, time)]
    assert rows["candidate"] == ["candidate", "r-2026-11", "5%", "c" * letters, *times]
    told = {each["name"]: each for each in guardrails()}
    late = ["late", "pass", "380", "1%", "0%", "-1%", "1%", "1", f"{told['late']['p_pass']:.2g}"]
    assert rows["late"][:9] == late
    assert rows["errors"][:7] == ["errors", "inconclusive", "400", "0%", "0%", "0%", "0.5%"]
    assert rows["drift_small"][:3] == ["drift_small", "inconclusive*", "400"]
    assert ("it is shown to be within its limit" in done.out) == (width == 200)
    assert "\n  answers of the candidate: 400 of 500\n" in done.out


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("status", [running(), turned_down(), idle()], ids=["running", "rolled back", "idle"])
def test_status_fits_the_terminal_and_has_no_colour_in_a_file(
    rollout: Rollout, listener: Listener, width: int, status: dict[str, Any]
) -> None:
    """No table is wider, nothing is cut with an ellipsis, and no escape is in what is no terminal."""
    listener.desk.told = status
    done = rollout("status", width=width)
    assert done.status == 0
    assert max(map(len, done.out.splitlines())) <= width
    assert "\x1b" not in done.out
    assert "\u2026" not in done.out


def test_status_of_a_rollback_says_why(rollout: Rollout, listener: Listener) -> None:
    """And since when, and what serves."""
    listener.desk.told = turned_down(at="2026-11-30T09:25:00+00:00")
    done = rollout("status")
    assert done.out.splitlines()[:3] == [
        "rolled back: r-2026-11 was rolled back; r-2026-10 decides all traffic",
        "since 2026-11-30 09:25:00, because",
        "  late: it is shown to be beyond its limit",
    ]


def test_status_says_what_is_wrong_with_what_is_desired(rollout: Rollout, listener: Listener) -> None:
    """Beside what serves all the same."""
    desired = {
        "release": None,
        "digest": None,
        "source": "a",
        "asked_at": "2026-11-29T09:00:00Z",
        "fault": "not signed",
    }
    listener.desk.told = idle(desired=desired)
    done = rollout("status")
    assert "what is desired cannot be used: not signed\n" in done.out
    assert _rows(done)["desired"] == ["desired", "-", "-", "11-29", "09:00", "-", "-"]
    assert "UTC, of 2026-11-30 where no day is told" in done.out


def test_status_as_json_is_what_the_sidecar_told(rollout: Rollout, listener: Listener) -> None:
    """Whole."""
    listener.desk.told = running()
    done = rollout("status", "--json")
    assert (done.status, json.loads(done.out)) == (0, running())


def test_start_tells_beforehand_what_must_be_shown(rollout: Rollout, listener: Listener) -> None:
    """Steps, limits and the time to rollback come before anything is begun; then how it stands."""
    listener.desk.then = running(step=0)
    done = rollout("start", "r-2026-11")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:4] == [
        f"release r-2026-11, {CANDIDATE['digest']}",
        "steps: 1% -> 5% -> 25% -> 100%; at least 60 s and 500 answers of the release at each",
        "to be shown: late +1%, errors +0.5%, fallback +2%, escalation +10%, cost +25%, ranking_loss 0.01, drift_psi 0.25",
        "the first step waits for",
    ]
    late = next(row for row in foreseen()["rollback_within"] if (row["guardrail"], row["harm"]) == ("late", 0.5))
    row = next(line for line in lines if line.startswith("late") and "+50%" in line)
    assert row.split() == ["late", "+50%", "1%", str(late["queries"]), f"{late['seconds'] / 60:.3g}", "min"]
    assert "40 requests a second, as now" in done.out
    assert lines[-1] == "running: r-2026-11 decides 1% of the traffic, r-2026-10 the rest"
    assert listener.desk.asked == [("foresee", "r-2026-11"), ("start", "r-2026-11", False, False)]


def test_start_tells_answers_where_there_is_no_traffic(rollout: Rollout, listener: Listener) -> None:
    """And begins nothing in a dry run."""
    listener.desk.plan = foreseen(0.0)
    done = rollout("start", "r-2026-11", "--dry-run")
    assert done.status == 0
    assert "no traffic now: count answers, not seconds" in done.out
    assert _rows(done)["cost"][-2:] == ["no", "traffic"]
    assert listener.desk.asked == [("foresee", "r-2026-11")]


def test_start_says_what_is_not_looked_for(rollout: Rollout, listener: Listener) -> None:
    """Guardrails that are off, harm that takes too long to show, and nothing at all."""
    limits = dict.fromkeys(foreseen()["limits"], None) | {"late": 0.01}
    slow = {"guardrail": "late", "harm": 0.05, "queries": None, "share": 0.01, "seconds": None}
    listener.desk.plan = foreseen() | {"limits": limits, "rollback_within": [slow], "steps": [0.0, 5.0, 100.0]}
    done = rollout("start", "r", "--dry-run")
    assert (
        "to be shown: late +1%; switched off: errors, fallback, escalation, cost, ranking_loss, drift_psi\n" in done.out
    )
    assert _rows(done)["late"] == ["late", "+5%", "1%", "too", "many", "-"]
    assert "steps: beside -> 5% -> 100%" in done.out
    listener.desk.plan = foreseen() | {"limits": dict.fromkeys(limits, None), "rollback_within": []}
    done = rollout("start", "r", "--dry-run")
    assert "to be shown: nothing; switched off: late" in done.out
    assert done.out.endswith("no harm is looked for: no guardrail is on, or no step has a share of the traffic\n")


def test_start_at_once_says_that_nothing_is_compared(rollout: Rollout, listener: Listener) -> None:
    """Both switches reach the sidecar."""
    done = rollout("start", "r-2026-11", "--at-once", "--lenient")
    assert done.status == 0
    assert done.out.splitlines()[1:] == [
        "all traffic at once: it is compared with nothing, and nothing takes it back by itself",
        "idle: no rollout is under way; r-2026-10 decides all traffic",
    ]
    assert listener.desk.asked[-1] == ("start", "r-2026-11", True, True)


def test_a_refusal_is_exit_1_with_its_reasons(rollout: Rollout, listener: Listener) -> None:
    """On stderr, one to a line; the step that refused is named where there is one."""
    why = ("evidence: it names no certificate", "evidence: it names no report")
    listener.desk.raises = Refused(ActivationStep.VERIFY, why)
    done = rollout("promote")
    assert (done.status, done.out) == (1, "")
    assert done.err == f"cascade: refused at verify\n  {why[0]}\n  {why[1]}\n"
    listener.desk.raises = ConfigError("no rollout is under way")
    done = rollout("abort")
    assert (done.status, done.err) == (1, "cascade: refused\n  no rollout is under way\n")


def test_promote_and_abort_reach_the_sidecar(rollout: Rollout, listener: Listener) -> None:
    """With what was said; what comes of it is told."""
    listener.desk.then = running()
    assert rollout("promote").status == rollout("promote", "--force").status == 0
    listener.desk.then = turned_down("aborted")
    done = rollout("abort", "--reason", "pages at night")
    assert done.out == "aborted: r-2026-11 was aborted; r-2026-10 decides all traffic\n"
    assert listener.desk.asked == [("promote", False), ("promote", True), ("abort", "pages at night")]
    done = rollout("abort", "--reason", "two\nlines")
    assert done.status == 2
    assert "reason: String should match pattern" in done.err


def test_history_tells_what_happened_with_its_evidence(rollout: Rollout, listener: Listener) -> None:
    """Latest first; the numbers of what failed; all of it as JSON."""
    entries = [entry(), entry("promoted", share=0.05, why=[], lenient=True, evidence=None)]
    listener.desk.entries = entries
    done = rollout("history")
    assert done.out.splitlines() == [
        "2026-11-30 09:25:00  rolled back  r-2026-11  cccccccccccc",
        "    late: it is shown to be beyond its limit",
        "    guardrails: 1 fail, 4 inconclusive, 3 pass",
        "      late: stable 1%, canary 33.4%, differs +32.4%, limit 1%, n 380",
        "2026-11-30 09:25:00  promoted  r-2026-11  cccccccccccc  at 5%  lenient",
    ]
    assert json.loads(rollout("history", "--json").out) == {"history": entries}
    listener.desk.entries = []
    assert rollout("history").out == "nothing happened yet\n"


@pytest.mark.parametrize("kind", ["bundle/", "bundle.tar"])
def test_a_bundle_from_here_is_handed_over_and_started_by_its_digest(
    rollout: Rollout, listener: Listener, release: WriteRelease, tmp_path: Path, kind: str
) -> None:
    """As a tar, whole."""
    made = tmp_path / kind.rstrip("/")
    build_bundle(Path(release()), made, {})
    done = rollout("start", f"{tmp_path}/{kind}")
    assert (done.status, done.err) == (0, "")
    put, *asked = listener.desk.asked
    assert parse_tar(put[1]) == {"release.yaml": (tmp_path / "release.yaml").read_bytes()}
    digest = CANDIDATE["digest"]
    assert (put[0], asked) == ("put", [("foresee", digest), ("start", digest, False, False)])


def test_what_is_no_bundle_is_exit_2(
    rollout: Rollout, listener: Listener, release: WriteRelease, tmp_path: Path
) -> None:
    """A path that is not there, a release that is not packed, one that lacks what it names; nothing is asked."""
    for path, said in (
        (f"{tmp_path}/none.tar", "cannot be read"),
        (release(), "no bundle; make one with cascade release build"),
    ):
        done = rollout("start", path)
        assert (done.status, done.out) == (2, "")
        assert said in done.err
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    data = yaml.safe_load(Path(release()).read_text(encoding="utf-8"))
    data["rollout"] = {"gold": "sha256:" + "0" * 64}
    (lacking / "release.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    done = rollout("start", str(lacking))
    assert done.status == 2
    assert "sha256:0000" in done.err
    assert listener.desk.asked == []


def test_the_key_comes_from_a_variable_or_a_file(rollout: Rollout, listener: Listener, tmp_path: Path) -> None:
    """What opens the listener; without it exit 2 says how to name one."""
    keys = tmp_path / "keys.yaml"
    entry_of = {"name": "op", "sha256": hash_of("op-key").hex(), "rights": ["read", "operate"]}
    keys.write_text(yaml.safe_dump({"keys": [entry_of]}), encoding="utf-8")
    access = open_access(keys, "admin", "admin_keys_file", listener.service.metrics.keys)
    file = tmp_path / "key"
    file.write_text("op-key\n", encoding="utf-8")
    with admin_listener(admin_access=access) as guarded:
        at = ("--admin", guarded.url)
        assert rollout("status", *at, "--key-file", str(file)).status == 0
        assert rollout("abort", *at, "--key-env", "OP_KEY", variables={"OP_KEY": "op-key"}).status == 0
        without = rollout("status", *at)
        watching = rollout("status", "--watch", *at)
        wrong = rollout("status", *at, "--key-env", "OP_KEY", variables={"OP_KEY": "kingfisher"})
    assert without.status == wrong.status == watching.status == 2
    assert watching.err == without.err
    hint = "name a key with --key-env or --key-file\n"
    assert without.err == f"cascade: {guarded.url}: authorization: a key is asked for; {hint}"
    assert wrong.err == f"cascade: {guarded.url}: authorization: the key is not known; {hint}"
    assert "kingfisher" not in wrong.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--key-env", "A", "--key-file", "b"), "--key-env, --key-file: name one"),
        (("--key-env", "UNSET_KEY"), "--key-env UNSET_KEY: there is no key"),
        (("--key-env", "TWO"), "--key-env TWO: a key is one line of printable ASCII without spaces"),
        (("--key-env", "LETTERS"), "--key-env LETTERS: a key is one line of printable ASCII without spaces"),
        (("--key-file", "none"), "--key-file none: cannot be read: FileNotFoundError"),
        (("--key-file", "large"), "--key-file large: it is too large for a key"),
        (("--admin", "127.0.0.1:8788"), "--admin: must be an http or https address, such as http://127.0.0.1:8788"),
        (("--admin", "http://[::1"), "--admin: must be an http or https address, such as http://127.0.0.1:8788"),
        (("--admin", "http://a/?b"), "--admin: must be an http or https address, such as http://127.0.0.1:8788"),
        (
            ("--admin", "http://me:kingfisher@a"),
            "--admin: an address holds no key; name one with --key-env or --key-file",
        ),
        (("--watch", "--json"), "--watch, --json: name one"),
    ],
)
def test_bad_input_is_exit_2_in_one_line(
    rollout: Rollout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """No key is in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_text("k" * 5000, encoding="utf-8")
    variables = {"TWO": "kingfisher one\n", "LETTERS": "k\u00f6nigsfischer"}
    done = rollout("status", *arguments, variables=variables)
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {said}\n")


def test_no_connection_is_exit_2(command: Command) -> None:
    """The address is named. It is the settings' own where none is given."""
    for variables, address in (
        ({"CASCADE_ADMIN_URL": "http://127.0.0.1:9/"}, "http://127.0.0.1:9"),
        ({"CASCADE__ADMIN_PORT": "9"}, "http://127.0.0.1:9"),
        ({"CASCADE__ADMIN_PORT": "9", "CASCADE__ADMIN_HOST": "0.0.0.0"}, "http://127.0.0.1:9"),  # noqa: S104
        ({"CASCADE__ADMIN_PORT": "9", "CASCADE__ADMIN_HOST": "::"}, "http://[::1]:9"),
    ):
        done = command("rollout", "status", variables=variables)
        assert (done.status, done.out) == (2, "")
        assert done.err == f"cascade: {address} does not answer: ConnectError\n"


def test_what_is_no_sidecar_that_rolls_out_is_exit_2(rollout: Rollout, listener: Listener) -> None:
    """A process without rollouts, one that is not ready, and one that tells otherwise."""
    listener.service.desk = None
    done = rollout("status")
    assert done.status == 2
    assert done.err.endswith("is not the admin listener of a sidecar that rolls releases out: status 404\n")
    listener.service.desk = listener.desk  # type: ignore[assignment]  # what the routes ask of it
    listener.service.started = False
    done = rollout("abort")
    assert (done.status, done.err) == (2, f"cascade: {listener.url}: not ready: try again\n")
    listener.desk.told = {"state": "running"}
    done = rollout("status")
    assert done.status == 2
    assert done.err == f"cascade: {listener.url} tells of rollouts otherwise than this version does\n"


def test_what_is_told_does_nothing_to_a_terminal(rollout: Rollout, listener: Listener) -> None:
    """Escapes, and letters that turn the direction of what follows, become question marks; markup stays text."""
    hostile = "\x1b[2J[red]r\u202e2"
    listener.desk.told = running(candidate=CANDIDATE | {"release": hostile}, stable=STABLE | {"release": "a\rb"})
    listener.desk.entries = [entry(release=hostile, why=[hostile])]
    for action in ("status", "history"):
        done = rollout(action)
        assert done.status == 0
        assert "?[2J[red]r?2" in done.out
        assert not set(done.out) & {"\x1b", "\u202e", "\r"}
    listener.desk.raises = ConfigError(hostile)
    assert rollout("abort").err == "cascade: refused\n  ?[2J[red]r?2\n"
