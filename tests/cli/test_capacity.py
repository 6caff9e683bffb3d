"""``cascade capacity``."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.policy.release import policy_digest, release_digest
from tests.capacity.made import CALIBRATED, record, records_head
from tests.cli.conftest import Command, Done, WriteRelease
from tests.replay.records import write_records
from tests.scenario import release_data

_LEVELS = [{"name": "normal"}, {"name": "low", "escalation": "none"}, {"name": "off", "stages": "none"}]
_BUDGETS = {"total_ms": 1000, "small_ms": 300, "large_ms": 600, "reserve_ms": 10}
_WORKLOAD: dict[str, Any] = {"arrivals": {"mean_qps": 6, "peak_qps": 10}, "candidates": 100, "pair_tokens": 100}
_THROUGHPUT = ("--throughput", "small=tokens_per_s:100000,large=tokens_per_s:10000")


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Write a workload of 100 candidates of 100 tokens."""
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump(_WORKLOAD), encoding="utf-8")
    return path


def _written(**changes: Any) -> dict[str, Any]:
    return release_data(**({"budgets": _BUDGETS} | changes))


def _plan(path: Path) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return plan


def _pairs(plan: dict[str, Any], stage: str = "large") -> tuple[float, str]:
    found = plan["levels"][0]["stages"][stage]
    return found["pairs_per_query"], found["pairs_from"]


def test_a_workload_becomes_replicas(command: Command, release: WriteRelease, workload: Path, tmp_path: Path) -> None:
    """50 pairs keep 0.05 of a small replica busy and 20 pairs 0.2 of a large one: at ten a second 2 and 5 replicas."""
    written = _written(levels=_LEVELS)
    out = tmp_path / "capacity.json"
    done = command("capacity", "--release", release(**written), "--workload", str(workload), *_THROUGHPUT,
                   "--out", str(out))  # fmt: skip
    assert (done.status, done.err) == (0, "")
    assert "release r1: 6 queries a second on average, 10 at peak; planned for 10" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["normal", "small", "constant", "50", "300/500/500", "30k/50k/50k"] in rows
    assert ["off", "none", "-", "-", "-"] in rows
    assert ["normal", "large", "5", "24%", "40%", "40%", "50%", "50%", "67%"] in rows
    assert ["normal", "large", "12.8", "15", "17", "17", "12.8"] in rows
    assert ["off", "-", "any", "any", "any", "any", "any"] in rows
    assert "first level that carries 10 queries a second: all up: normal, failed: normal" in done.out
    assert done.out.endswith(f"plan: {out}\n")
    plan = _plan(out)
    assert [level["pools"] and level["pools"]["small"]["replicas"] for level in plan["levels"]] == [2, 2, {}]
    digest = sha256(workload.read_bytes()).hexdigest()
    conditions = plan["conditions"]
    assert conditions["workload"] == {"name": "workload.yaml", "sha256": digest}
    assert (conditions["release"], conditions["release_digest"]) == ("r1", release_digest(written))
    assert conditions["throughput"]["large"] == {"tokens_per_s": 10_000.0}


def test_options_reach_the_plan(command: Command, release: WriteRelease, workload: Path, tmp_path: Path) -> None:
    """Growth and burst multiply the rate, headroom is as asked, and a measured file tells what the line does not."""
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({"large": {"tokens_per_s": 1e4, "padding": 1.1, "buckets": None}}), encoding="utf-8")
    out = tmp_path / "capacity.json"
    done = command("capacity", "--release", release(**_written()), "--workload", str(workload), "--out", str(out),
                   "--throughput", "small=pairs_per_s:1000,pair_tokens:100", "--measured", str(measured),
                   "--growth", "2", "--burst", "1.5", "--utilisation", "0.5", "--max-utilisation", "0.9",
                   "--failures", "0", "--max-unavailable", "1", "--one-at-a-time",
                   "--have", "small=4, large=9")  # fmt: skip
    assert (done.status, done.err) == (0, "")
    plan = _plan(out)
    assert (plan["arrivals"]["peak_qps"], plan["arrivals"]["planned_qps"]) == (20.0, 30.0)
    assert plan["conditions"]["headroom"] == {
        "utilisation": 0.5,
        "most_utilisation": 0.9,
        "failures": 0,
        "max_unavailable": "1",
        "failure_during_update": False,
    }
    assert plan["conditions"]["throughput"]["large"]["padding"] == 1.1
    pools = plan["levels"][0]["pools"]
    assert (pools["small"]["replicas"], pools["large"]["replicas"]) == (3, 14)
    assert plan["carried"]["replicas"] == {"small": 4, "large": 9}
    assert "at most 50% busy with all up, and 90% with 0 failed, 1 in update. Share" in " ".join(done.out.split())
    assert "first level that carries 30 queries a second: all up: NONE" in done.out


def test_windows_of_a_workload_tell_the_time_of_each_level(
    command: Command, release: WriteRelease, workload: Path
) -> None:
    """Three quarters of the time at normal, the rest at the level without escalation."""
    windows = [{"qps": 2, "seconds": 2700}, {"qps": 15, "seconds": 900}]
    workload.write_text(yaml.safe_dump(_WORKLOAD | {"arrivals": {"windows": windows}}), encoding="utf-8")
    done = command("capacity", "--release", release(**_written(levels=_LEVELS)), "--workload", str(workload),
                   *_THROUGHPUT, "--have", "small=3,large=3")  # fmt: skip
    assert "first level that carries each window, by time: normal 75.0%, low 25.0%" in done.out


def _records(path: Path, count: int, **changes: Any) -> Path:
    """Write one record a second of the release r1, each with 4 candidates of which one is sent."""
    head = records_head(policy_digest=policy_digest(_written(escalation=CALIBRATED)))
    lines = [record(second, escalated=[1], **changes) for second in range(count)]
    return write_records(path, [head, *lines])


def test_records_become_replicas(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """Their rate, their sizes, and what was sent: a tenth recorded, so ten queries a second."""
    path = _records(tmp_path / "r", 121, sample=0.1, propensity=0.1)
    out = tmp_path / "capacity.json"
    done = command("capacity", "--release", release(**_written(escalation=CALIBRATED)), "--records", str(path),
                   "--burst", "1.2", *_THROUGHPUT, "--out", str(out))  # fmt: skip
    assert (done.status, done.err) == (0, "")
    assert "10 queries a second on average, 10 at peak (+- 1.22); planned for 12" in done.out
    assert "1 records came behind the last whole window: they count for sizes, not for rates" in done.out
    assert "WORST" not in done.out
    plan = _plan(out)
    assert _pairs(plan) == (1.0, "records")
    assert plan["levels"][0]["stages"]["large"]["tokens_per_pair"] == 30.0
    assert plan["levels"][-1]["name"] == "safe mode"
    assert plan["conditions"]["records"]["window_seconds"] == 60.0
    assert plan["conditions"]["records"]["counts"]["of_release"] == 121
    assert plan["conditions"]["records"]["files"] == [{"name": "r", "sha256": sha256(path.read_bytes()).hexdigest()}]


def test_few_records_of_the_release_are_told(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """And none of it."""
    written = release(**_written(escalation=CALIBRATED))
    few = command("capacity", "--release", written, "--records", str(_records(tmp_path / "r", 61)), *_THROUGHPUT)
    assert "only 61 records tell what this release sends: its pairs are uncertain" in few.out
    others = _records(tmp_path / "o", 61)
    other = command("capacity", "--release", release(**_written()), "--records", str(others), *_THROUGHPUT)
    assert "no record is of this release: records tell arrivals and sizes, and not what it sends" in other.out


def test_records_of_mode_observe_tell_of_the_release_that_they_observed(
    command: Command, release: WriteRelease, tmp_path: Path
) -> None:
    """The one in mode cascade, with levels or without, is planned by what it would have sent."""
    observing = _written(escalation=CALIBRATED, mode="observe")
    head = records_head(mode="observe", policy_digest=policy_digest(observing))
    would = {"depth": 4, "action": "cluster", "escalated": [0]}
    lines = [record(second, would=would, load_level=None) for second in range(61)]
    path, out = write_records(tmp_path / "r", [head, *lines]), tmp_path / "capacity.json"
    done = command("capacity", "--release", release(**_written(escalation=CALIBRATED, levels=_LEVELS)), "--records",
                   str(path), *_THROUGHPUT, "--out", str(out))  # fmt: skip
    assert done.status == 0
    assert _pairs(_plan(out)) == (1.0, "records")


def _report(path: Path, digest: str, **changes: Any) -> Path:
    report = {
        "report": "cascade eval",
        "version": 2,
        "conditions": {"depth": None, "policy": {"release": "r1", "policy_digest": digest}},
        "policies": [
            {"name": "large", "large_share": 1.0, "large_pairs": 100.0},
            {"name": "policy", "large_share": 0.1, "large_pairs": 10.0},
        ],
    } | changes
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def test_a_report_tells_what_is_sent(command: Command, release: WriteRelease, workload: Path, tmp_path: Path) -> None:
    """A tenth of the workload's candidates; its digest is in the conditions, and other lists are told."""
    written = _written(escalation=CALIBRATED)
    report = _report(tmp_path / "report.json", policy_digest(written))
    workload.write_text(yaml.safe_dump(_WORKLOAD | {"candidates": 60}), encoding="utf-8")
    out = tmp_path / "capacity.json"
    done = command("capacity", "--release", release(**written), "--workload", str(workload), *_THROUGHPUT,
                   "--report", str(report), "--out", str(out))  # fmt: skip
    assert (done.status, done.err) == (0, "")
    plan = _plan(out)
    assert _pairs(plan) == (6.0, "report")
    assert plan["conditions"]["report"] == {
        "name": "report.json",
        "sha256": sha256(report.read_bytes()).hexdigest(),
    }
    assert "report.json was measured on 100.0 candidates a query and the workload has 60.0" in done.out


def test_without_anything_that_tells_the_worst_is_planned_loudly(
    command: Command, release: WriteRelease, workload: Path
) -> None:
    """Never a made-up share."""
    done = command("capacity", "--release", release(**_written(escalation=CALIBRATED)), "--workload", str(workload),
                   *_THROUGHPUT)  # fmt: skip
    assert "WORST CASE: nothing tells how many pairs level normal sends to large" in done.out


def test_the_packaged_release_is_planned_where_none_is_named(command: Command, workload: Path) -> None:
    """Both of its stages are inside the sidecar; a large number is short."""
    done = command("capacity", "--workload", str(workload), "--throughput",
                   "small=pairs_per_s:700,large=pairs_per_s:30", "--growth", "1000")  # fmt: skip
    assert done.status == 0
    assert "6k queries a second on average" in done.out
    assert "small and large run inside the sidecar" in done.out


def test_a_packaged_release_is_known_by_its_name(command: Command, workload: Path) -> None:
    """As the other commands know it."""
    done = command("capacity", "--release", "tei-vllm", "--workload", str(workload), *_THROUGHPUT)
    assert done.status == 0, done.err
    assert done.out.startswith("release tei-vllm")


def test_a_release_without_stages_needs_nothing(command: Command, release: WriteRelease, workload: Path) -> None:
    """There is no table of replicas."""
    done = command("capacity", "--release", release(), "--workload", str(workload))
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith("no replica is planned\n")


def _bad(command: Command, release: WriteRelease, *more: str) -> Done:
    return command("capacity", "--release", release(**_written()), *more)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--workload", "absent.yaml", *_THROUGHPUT), "workload absent.yaml: cannot be read: FileNotFoundError"),
        (_THROUGHPUT, "name one of --workload, --records and --metrics"),
        (("--workload", "WORKLOAD", "--records", "r", *_THROUGHPUT), "name one of --workload, --records and --metrics"),
        (("--metrics", "m", "--records", "r", *_THROUGHPUT), "name one of --workload, --records and --metrics"),
        (("--metrics", "no.prom", *_THROUGHPUT), "metrics no.prom: cannot be read: FileNotFoundError"),
        (("--workload", "WORKLOAD"), "no throughput of the stage small"),
        (
            ("--workload", "WORKLOAD", "--throughput", "small=pairs_per_s:0"),
            "small.pairs_per_s: Input should be greater",
        ),
        (
            ("--workload", "WORKLOAD", "--throughput", "small=pairs_per_s:nan"),
            "small.pairs_per_s: Input should be a fin",
        ),
        (("--workload", "WORKLOAD", "--throughput", "medium=pairs_per_s:1"), "there is no medium"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, *_THROUGHPUT), "throughput: large is given twice"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--measured", "no.yaml"), "measured no.yaml: cannot be read"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--report", "no.json"), "report no.json: cannot be read"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--growth", "0"), "--growth: write a number above 0"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--growth", "nan"), "--growth: write a number above 0"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--burst", "0.5"), "--burst: write a number from 1 up"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--utilisation", "0"), "utilisation and max-utilisation"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--max-unavailable", "half"), "--max-unavailable: write a count"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--have", "small"), "--have: write POOL=COUNT"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--have", "small=1,small=2"), "--have: write POOL=COUNT"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--have", "small=-1"), "--have: write POOL=COUNT"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--have", "small=1"), "--have: name just the replicas"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--have", f"small={10**23}"), "--have: small: at most 1000000"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--growth", "1e308"), "more than 1000000 replicas busy"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--burst", "1e308"), "more than 1000000 replicas busy"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--failures", f"{10**23}"), "failures: write a number from 0"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--out", "/"), "--out /: it is no file"),
        (("--workload", "WORKLOAD", *_THROUGHPUT, "--out", "no/p.json"), "--out no/p.json: its folder is not there"),
        (("--records", "r", "--records", "./r", *_THROUGHPUT), "a file is named twice"),
        (("--records", "absent", *_THROUGHPUT), "records absent: cannot be read: FileNotFoundError"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    command: Command, release: WriteRelease, workload: Path, more: tuple[str, ...], told: str
) -> None:
    """No traceback, and what to change."""
    done = _bad(command, release, *(str(workload) if each == "WORKLOAD" else each for each in more))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("cascade: ")
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("w.yaml", "arrivals: [", "w.yaml: not valid YAML"),
        ("w.yaml", "- 1", "w.yaml: the file must hold one mapping"),
        ("w.yaml", "candidates: 1\ncandidates: 2", "w.yaml: line 2: candidates is given twice"),
        ("w.json", "{", "w.json: not valid JSON"),
        ("w.json", "[]", "w.json: the file must hold one mapping"),
        ("w.json", '{"arrivals": {"peak_qps": 1}, "candidates": 5}', "w.json: pair_tokens: Field required"),
    ],
)
def test_a_workload_that_cannot_be_read_is_named(
    command: Command, release: WriteRelease, tmp_path: Path, name: str, content: str, told: str
) -> None:
    """With what is wrong in it."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    done = _bad(command, release, "--workload", str(tmp_path / name), *_THROUGHPUT)
    assert done.status == 2
    assert told in done.err


def test_a_report_of_another_release_is_refused(
    command: Command, release: WriteRelease, workload: Path, tmp_path: Path
) -> None:
    """Its shares are not this one's."""
    report = _report(tmp_path / "report.json", "sha256:other")
    done = _bad(command, release, "--workload", str(workload), *_THROUGHPUT, "--report", str(report))
    assert done.status == 2
    assert "report report.json: it is of the policy sha256:other" in done.err


def test_records_of_one_second_are_refused(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """They are no rate."""
    path = write_records(tmp_path / "r", [records_head(), record(0), record(1)])
    done = _bad(command, release, "--records", str(path), *_THROUGHPUT)
    assert done.status == 2
    assert "they span 1 s, and a rate needs a whole window of 60 s" in done.err
