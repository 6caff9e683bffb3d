"""``cascade rollout``, against an admin listener on a real socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.bundle import build_bundle
from cascade.rollout.tar import parse_tar
from tests.cli.conftest import Done, Rollout, WriteRelease
from tests.server.admin_listener import Listener
from tests.server.rollout_desk import CANDIDATE, entry, foreseen, guardrails, idle, put_off, running, turned_down


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


def test_a_narrow_terminal_has_fewer_columns_and_whole_numbers(rollout: Rollout, listener: Listener) -> None:
    """A number that is cut off is another number."""
    listener.desk.told = running()
    done = rollout("status", width=45)
    assert "\u2026" not in done.out
    rows = _rows(done)
    assert rows["guardrail"] == ["guardrail", "verdict", "n", "differs", "limit"]
    assert rows["errors"] == ["errors", "inconclusive", "400", "0%", "0.5%"]
    assert rows["candidate"] == ["candidate", "r-2026-11", "5%", "09:00:03"]


def test_status_of_a_rollback_says_why(rollout: Rollout, listener: Listener) -> None:
    """And since when, and what serves."""
    listener.desk.told = turned_down(at="2026-11-30T09:25:00+00:00")
    done = rollout("status")
    assert done.out.splitlines()[:3] == [
        "rolled back: r-2026-11 was rolled back; r-2026-10 decides all traffic",
        "since 2026-11-30 09:25:00, because",
        "  late: it is shown to be beyond its limit",
    ]


def test_status_says_when_a_refusal_is_tried_again(rollout: Rollout, listener: Listener) -> None:
    """Else an operator would start it himself; without a try to come there is no such line."""
    listener.desk.told = put_off()
    assert rollout("status").out.splitlines()[:4] == [
        "refused: r-2026-11 was refused at probe; r-2026-10 decides all traffic",
        "since 2026-11-30 09:25:00, because",
        "  small: no answer",
        "r-2026-11 is tried again at 2026-11-30 09:25:30",
    ]
    listener.desk.told["desired"]["tried_again_at"] = None
    assert "tried again" not in rollout("status").out


def test_status_says_that_its_state_is_not_kept(rollout: Rollout, listener: Listener) -> None:
    """And why: a restart would go on from what was kept last."""
    listener.desk.told = idle(state_fault="No space left on device\x1b")
    said = "the state of rollouts cannot be kept, a restart goes on from what was kept last: No space left on device?\n"
    assert said in rollout("status").out
    del listener.desk.told["state_fault"]  # a sidecar of before
    assert "cannot be kept" not in rollout("status").out


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
    entries.append(entry("refused", step="probe", share=0.0, why=["small stage: constant"], evidence=None))
    listener.desk.entries = entries
    done = rollout("history")
    assert done.out.splitlines() == [
        "2026-11-30 09:25:00  rolled back  r-2026-11  cccccccccccc",
        "    late: it is shown to be beyond its limit",
        "    guardrails: 1 fail, 4 inconclusive, 3 pass",
        "      late: stable 1%, canary 33.4%, differs +32.4%, limit 1%, n 380",
        "2026-11-30 09:25:00  promoted  r-2026-11  cccccccccccc  at 5%  lenient",
        "2026-11-30 09:25:00  refused  r-2026-11  cccccccccccc  at the step probe",
        "    small stage: constant",
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
