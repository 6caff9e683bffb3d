"""``cascade off-policy``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.testing.calibration import scripted_artefact
from tests.cli.conftest import Command
from tests.replay.served import Serving, made_queries, serving_of, traffic

_FOUR: Final = {"kind": "static", "top_m": 4}
_SHALLOW: Final = serving_of("shallow", 0.5, depth=4, escalation=_FOUR)
_DEEP: Final = serving_of("deep", 0.5, depth=12, escalation=_FOUR)
_TARGET: Final = serving_of(
    "by-class", depth={"kind": "greedy", "default": 12, "classes": {"identifier": 4}}, escalation=_FOUR
)
_OBSERVING: Final = serving_of("observing", mode="observe", depth=12, escalation="none")


def _file(folder: Path, serving: Serving, **changes: Any) -> str:
    path = folder / f"{serving.data['release']}.yaml"
    path.write_text(yaml.safe_dump({**serving.data, **changes}), encoding="utf-8")
    return str(path)


@pytest.fixture
def split(tmp_path: Path) -> list[str]:
    """Give the arguments that ask about 500 queries, every second of them accepted, in two files of records."""
    served = traffic(made_queries(500), (_SHALLOW, _DEEP))
    lines = [*served.heads, *served.lines]
    (tmp_path / "r.1").write_bytes(b"".join([*served.heads, *lines[2:200]]))
    (tmp_path / "r").write_bytes(b"".join([*served.heads, *lines[200:]]))
    outcomes = [{"decision_id": name, "reward": float(int(name[3:]) % 2)} for name in served.served]
    (tmp_path / "outcomes").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in outcomes))
    arms = [f"{_file(tmp_path, arm)}={arm.share}" for arm in (_SHALLOW, _DEEP)]
    return [
        "--records", str(tmp_path / "r"), str(tmp_path / "r.1"), "--out", str(tmp_path / "out.json"),
        "--arm", arms[0], "--arm", arms[1], "--outcomes", str(tmp_path / "outcomes"), "--resamples", "1000",
    ]  # fmt: skip


def test_a_split_and_its_outcomes_become_a_report(command: Command, tmp_path: Path, split: list[str]) -> None:
    """The summary tells coverage, value, weights and cost; the report says what it is of."""
    done = command("off-policy", "--release", _file(tmp_path, _TARGET), *split)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "by-class: 500 records, 500 to estimate from"
    assert [line.split(" ")[0] for line in lines] == [
        "by-class:", "the", "the", "", "", "reward:", "", "large", "", "report:",
    ]  # fmt: skip
    assert all(name in lines[5] for name in ("IPS 0.", "SNIPS 0.", "DR 0.", "minus what was logged ", "logged 0.5"))
    assert lines[6].startswith("  mean weight ")
    assert lines[6].endswith(" of 500 queries, 0.0% of the weight clipped")
    assert "SNIPS 4 (4 4), DR 4 (4 4), minus what was logged 0 (0 0), logged 4 (4 4)" in lines[7]
    told = orjson.loads((tmp_path / "out.json").read_bytes())
    assert told["report"] == "cascade off-policy"
    assert told["target"]["release"] == "by-class"
    assert told["target"]["policy_digest"].startswith("sha256:")
    assert [(arm["release"], arm["share"], arm["fidelity"]) for arm in told["arms"]] == [
        ("shallow", 0.5, 1.0),
        ("deep", 0.5, 1.0),
    ]


def test_what_is_refused_is_exit_1_and_says_why(command: Command, tmp_path: Path, split: list[str]) -> None:
    """The report is written all the same."""
    other = serving_of("other", depth=12, escalation={"kind": "static", "top_m": 3})
    done = command("off-policy", "--release", _file(tmp_path, other), *split, "--no-dr")
    assert (done.status, done.err) == (1, "")
    assert "reward: REFUSED, logged 0.5" in done.out
    assert "  support: on " in done.out
    assert orjson.loads((tmp_path / "out.json").read_bytes())["reward"]["ips"] is None


def test_without_outcomes_coverage_is_no_refusal(command: Command, tmp_path: Path, split: list[str]) -> None:
    """A target that is not covered is told, with what it sends, and status 0."""
    other = serving_of("other", depth=4, escalation={"kind": "static", "top_m": 3})
    cut = split.index("--arm")
    done = command("off-policy", "--release", _file(tmp_path, other), *split[:cut])
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[1] == "the same candidates sent on 0 (0 0) of 500 records"
    assert lines[4] == "large pairs: 3 (3 3), counted, logged 4 (4 4)"


def test_shadow_pairs_are_told_as_silver(command: Command, tmp_path: Path) -> None:
    """What is left out is counted below."""
    records = traffic(made_queries(40), [_OBSERVING]).write(tmp_path / "r")
    records.write_bytes(records.read_bytes() + b"{\n")
    arguments = ("--records", str(records), "--out", str(tmp_path / "out.json"), "--k", "5")
    done = command("off-policy", "--release", _file(tmp_path, _DEEP), *arguments)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "deep: 40 records, 0 to estimate from"
    assert lines[1].startswith("observed, 40 records: SILVER ndcg@5 0.")
    assert lines[1].endswith("large pairs 4 (4 4), 0.333 of always-large")
    assert lines[2].startswith("  whatever the judgements, ndcg@5 lost is at most 0.")
    assert lines[3] == "1 lines torn"


def test_a_release_reads_the_calibration_that_it_names(command: Command, tmp_path: Path) -> None:
    """By its digest, among those given or with the release; without it the command is refused."""
    data = artefact_bytes(scripted_artefact())
    (tmp_path / "c.json").write_bytes(data)
    rule = {"kind": "calibrated", "calibration": artefact_digest(data), "price_per_pair": 0.01, "k": 5}
    release = _file(tmp_path, _DEEP, escalation=rule)
    records = traffic(made_queries(12), [_OBSERVING]).write(tmp_path / "r")
    arguments = ("off-policy", "--release", release, "--records", str(records), "--out", str(tmp_path / "out.json"))
    done = command(*arguments, "--calibration", str(tmp_path / "c.json"))
    assert (done.status, done.err) == (0, "")
    assert "12 records: SILVER" in done.out
    refused = command(*arguments)
    assert (refused.status, refused.err.partition(" has this digest")[0]) == (
        2,
        f"cascade: release {release}: artefact {artefact_digest(data)}: no file",
    )
    assert refused.err.endswith("; name it with --calibration\n")
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "any.json").write_bytes(data)
    assert command(*arguments).status == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--arm", "x.yaml"), "release x.yaml: cannot be read: FileNotFoundError"),
        (("--arm", "x.yaml=none"), "--arm: write RELEASE=SHARE, with a share above 0 and at most 1, or RELEASE alone"),
        (("--arm", "x.yaml=1.5"), "--arm: write RELEASE=SHARE, with a share above 0 and at most 1, or RELEASE alone"),
        (("--without-outcome", "0"), "--without-outcome: a finite number is wanted, and --outcomes"),
        (("--outcomes", "none"), "outcomes none: cannot be read: FileNotFoundError"),
        ((), "records none: cannot be read: FileNotFoundError"),
    ],
)
def test_what_cannot_be_used_is_exit_2(command: Command, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    """One line says what is wrong, and nothing is written."""
    out = tmp_path / "out.json"
    release = _file(tmp_path, _DEEP)
    done = command("off-policy", "--release", release, "--records", "none", "--out", str(out), *arguments)
    assert (done.status, done.out, done.err) == (2, "", f"cascade: {told}\n")
    assert not out.exists()


def test_a_report_that_cannot_be_written_is_exit_2(command: Command, tmp_path: Path) -> None:
    """The folder is not there."""
    records = traffic(made_queries(12), [_OBSERVING]).write(tmp_path / "r")
    out = tmp_path / "none" / "out.json"
    done = command("off-policy", "--release", _file(tmp_path, _DEEP), "--records", str(records), "--out", str(out))
    assert (done.status, done.err) == (2, f"cascade: --out {out}: cannot be written: FileNotFoundError\n")
