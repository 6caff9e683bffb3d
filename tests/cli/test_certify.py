"""``cascade certify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.calibration.artefact import artefact_bytes, artefact_digest
from cascade.calibration.certificate import certificate_digest, parse_certificate
from cascade.replay.table import write_table
from cascade.rollout.load import load_release
from cascade.rollout.verify import verify
from tests.cli.conftest import Command, Done
from tests.fit.planted import planted_table
from tests.replay.made_calibration import made_artefact
from tests.scenario import release_data

_ROLES = ("--first-stage", "bm25,dense", "--small", "small", "--large", "large", "--k", "5")
_ALMOST = {"bm25": 2.0, "dense": 0.8, "small": 0.4, "large": 0.35}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Write 300 queries of 10 candidates, whose small scorer is almost as good as the large one."""
    write_table(tmp_path / "t.parquet", planted_table(300, 10, seed=4, errors=_ALMOST))
    return str(tmp_path / "t.parquet")


def _certify(command: Command, folder: Path, table: str, *more: str, epsilon: str = "0.08") -> Done:
    out = () if "--out" in more else ("--out", str(folder / "cert.json"))
    return command("certify", "--table", table, *_ROLES, "--epsilon", epsilon, *out, *more)


def _release(folder: Path, **changes: Any) -> str:
    path = folder / "base.yaml"
    path.write_text(yaml.safe_dump(release_data(**changes)), encoding="utf-8")
    return str(path)


def test_a_table_becomes_a_certificate(command: Command, tmp_path: Path, table: str) -> None:
    """It is written, told in short with its digest, and the attempt is in the log beside it."""
    done = _certify(command, tmp_path, table, "--family", "static", "--seed", "2")
    assert (done.status, done.err) == (0, "")
    data = (tmp_path / "cert.json").read_bytes()
    told = parse_certificate(data, "it")
    assert (told.policy.family, told.splits.seed, told.contract.epsilon) == ("static", 2, 0.08)
    words = " ".join(done.out.split())
    assert "CERTIFIED: mean loss of nDCG@5 (gold, two-sided) at most 0.08 with confidence 0.9" in words
    assert f"static at {told.policy.setting:.3g} sends {told.large_share:.1%} of always-large's pairs" in words
    assert done.out.endswith(f"certificate: {tmp_path / 'cert.json'}\n{certificate_digest(data)}\n")
    (line,) = (tmp_path / "attempts.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["identity"] == told.attempts.identity


def test_what_is_not_shown_is_refused_loudly(command: Command, tmp_path: Path, table: str) -> None:
    """Exit status 1, no certificate, and how many queries it would take."""
    done = _certify(command, tmp_path, table, "--family", "static", "--sided", "one", epsilon="0.001")
    assert done.status == 1
    assert not (tmp_path / "cert.json").exists()
    assert done.err.startswith("NOT CERTIFIED: a mean loss of at most 0.001 is not shown at delta 0.1\n")
    assert "must certify even where none of them loses anything" in done.err
    assert done.err.endswith("no certificate is written; always-large is what is safe\n")
    assert (tmp_path / "attempts.jsonl").exists()


def test_a_release_is_written_that_names_its_certificate(command: Command, tmp_path: Path, table: str) -> None:
    """Its policy is the one that was certified, its evidence the certificate; certified as it is it keeps its rule."""
    base = _release(tmp_path, escalation={"kind": "static", "top_m": 5})
    out, cert = tmp_path / "mine.yaml", tmp_path / "calibration" / "cert.json"
    cert.parent.mkdir()
    done = _certify(command, tmp_path, table, "--release", base, "--release-out", str(out), "--out", str(cert))
    assert (done.status, done.err) == (0, "")
    told = parse_certificate(cert.read_bytes(), "it")
    loaded = load_release(out, {})
    assert loaded.policy_digest == told.policy.policy_digest
    assert loaded.release.evidence is not None
    assert loaded.release.evidence.certificate == certificate_digest(cert.read_bytes())
    assert loaded.written["escalation"] == told.policy.escalation
    assert f"release: {out}\nescalation static, top {told.policy.setting:.0f}\n" in done.out
    found = [finding.what for finding in verify(out, {}).findings if finding.what.startswith("evidence, certificate:")]
    assert found == []
    alone = _certify(command, tmp_path, table, "--release", base)
    assert (alone.status, alone.err) == (0, "")
    as_it_is = parse_certificate((tmp_path / "cert.json").read_bytes(), "it")
    assert as_it_is.policy.policy_digest == load_release(Path(base), {}).policy_digest
    assert (as_it_is.policy.setting, as_it_is.attempts.number) == (5.0, 1)


@pytest.mark.parametrize("kept", [False, True], ids=["at a threshold", "as it is"])
def test_a_report_is_kept_for_the_policy_that_it_is_of_alone(
    command: Command, tmp_path: Path, table: str, *, kept: bool
) -> None:
    """Another threshold makes another policy, of which it says nothing; the certificate is named beside it else."""
    report = f"sha256:{'1' * 64}"
    base = _release(tmp_path, escalation={"kind": "static", "top_m": 5}, evidence={"report": report})
    out = tmp_path / "mine.yaml"
    options = ("--release", base, "--release-out", str(out))
    if kept:  # the threshold that is certified, as the release's own
        assert _certify(command, tmp_path, table, *options).status == 0
        rule = load_release(out, {}).written["escalation"]
        base = _release(tmp_path, escalation=rule, evidence={"report": report})
        (tmp_path / "cert.json").unlink()
        out.unlink()
    assert _certify(command, tmp_path, table, *options).status == 0
    loaded = load_release(out, {})
    assert loaded.release.evidence is not None
    assert loaded.release.evidence.report == (report if kept else None)
    assert loaded.release.evidence.certificate == certificate_digest((tmp_path / "cert.json").read_bytes())


def test_a_calibration_that_is_given_is_read(command: Command, tmp_path: Path, table: str) -> None:
    """All families are tried on it, and it is named."""
    data = artefact_bytes(made_artefact())
    (tmp_path / "c.json").write_bytes(data)
    done = _certify(command, tmp_path, table, "--family", "all", "--calibration", str(tmp_path / "c.json"))
    assert (done.status, done.err) == (0, "")
    told = parse_certificate((tmp_path / "cert.json").read_bytes(), "it")
    assert told.policy.calibration in {None, artefact_digest(data)}
    assert not (tmp_path / "cert.calibration.json").exists()


def test_a_calibration_that_is_fitted_here_is_written(command: Command, tmp_path: Path, table: str) -> None:
    """Beside the certificate that names it."""
    done = _certify(command, tmp_path, table, "--family", "static-fused", "--shares", "0.45,0,0.55", epsilon="0.15")
    assert (done.status, done.err) == (0, "")
    told = parse_certificate((tmp_path / "cert.json").read_bytes(), "it")
    fitted = (tmp_path / "cert.calibration.json").read_bytes()
    assert told.policy.calibration == artefact_digest(fitted)
    assert f"calibration: {tmp_path / 'cert.calibration.json'}\n{artefact_digest(fitted)}\n" in done.out


def test_levels_of_a_release_and_fallbacks_enter_the_bound(command: Command, tmp_path: Path, table: str) -> None:
    """Each level is replayed as the release that it is."""
    levels = [{"name": "normal"}, {"name": "busy", "escalation": "none"}]
    base = _release(tmp_path, escalation={"kind": "static", "top_m": 6}, levels=levels)
    done = _certify(
        command, tmp_path, table, "--release", base, "--levels-served", "normal=0.98,busy=0.02", "--fallbacks", "0/5000",
        "--attempts", str(tmp_path / "log.jsonl"), epsilon="0.12",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    told = parse_certificate((tmp_path / "cert.json").read_bytes(), "it")
    assert told.as_served is not None
    assert set(told.as_served.levels) == {"normal", "busy"}
    assert told.as_served.fallbacks is not None
    assert told.as_served.fallbacks.counted == (0, 5000)
    assert f"as served, with levels and fallbacks: bound {told.as_served.bound:+.4f}" in done.out
    assert (tmp_path / "log.jsonl").exists()


def test_what_nobody_judged_is_told(command: Command, tmp_path: Path) -> None:
    """How much of both heads is judged, and the bound where the rest is worth most."""
    whole = planted_table(300, 10, seed=4, errors=_ALMOST)
    assert whole.rel is not None
    rel = whole.rel.copy()
    rel[::7] = -1
    write_table(tmp_path / "holed.parquet", planted_table(300, 10, seed=4, errors=_ALMOST, rel=rel))
    done = _certify(
        command, tmp_path, str(tmp_path / "holed.parquet"), "--family", "static", "--where", "q_class=other"
    )
    words = " ".join(done.out.split())
    assert "judged in the head: 8" in words
    assert "where all that is unjudged is worth most" in words
    assert parse_certificate((tmp_path / "cert.json").read_bytes(), "it").data.where == ("q_class=other",)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--epsilon", "0"), "--epsilon: a mean loss above 0"),
        (("--delta", "1"), "--delta: a probability above 0"),
        (("--release-out", "r.yaml"), "--release-out: name the release to take over"),
        (("--shares", "0.5,0.5"), "--shares: write three numbers"),
        (("--shares", "0.5,0.5,0.5"), "--shares: three shares of at least 0 that sum to 1"),
        (("--levels-served", "normal"), "--levels-served: write LEVEL=SHARE"),
        (("--levels-served", "normal=0.5,normal=0.5"), "--levels-served: each level once"),
        (("--levels-served", "normal=0.5"), "--levels-served: shares of at least 0 that sum to 1"),
        (("--fallbacks", "3"), "--fallbacks: write X/N"),
        (("--fallbacks", "3/2", "--family", "static"), "--fallbacks: X/N counts N requests, at least 1, and X of them"),
        (("--fallback-rate", "2"), "--fallback-rate: a share"),
        (("--where", "q_class=none"), "column q_class: no query has the value asked for"),
        (("--large", "huge", "--family", "static"), "no column huge"),
        (("--out", "/absent/cert.json"), "--out /absent/cert.json: its folder is not there"),
        (("--out", "/"), "--out /: is there already"),
        (("--table", "absent.parquet"), "table absent.parquet: there is no such file"),
        (("--calibration", "absent.json"), "calibration absent.json: cannot be read"),
        (("--shares", "0.2,0.4,0.4"), "calibrating needs 100"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    command: Command, tmp_path: Path, table: str, more: tuple[str, ...], told: str
) -> None:
    """No traceback, no certificate, and what to change."""
    done = _certify(command, tmp_path, table, *more)
    assert done.status == 2
    assert done.err.startswith("cascade: ")
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "cert.json").exists()


def test_a_certificate_that_is_there_is_not_replaced(command: Command, tmp_path: Path, table: str) -> None:
    """A release may name it."""
    (tmp_path / "cert.json").write_bytes(b"mine")
    done = _certify(command, tmp_path, table)
    assert (done.status, "is there already" in done.err) == (2, True)
    assert (tmp_path / "cert.json").read_bytes() == b"mine"
