"""How a release is rolled out, in words, in bundles and in what verify finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from cascade.calibration.artefact import artefact_digest
from cascade.policy.release import RolloutRules
from cascade.rollout.bundle import Bundle, build_bundle, load_bundle
from cascade.rollout.diff import differences, rollout_differences
from cascade.rollout.load import offline
from cascade.rollout.show import description
from cascade.rollout.verify import verify
from cascade.rollout.words import rollout_lines

from .arrange import write_release

_SECRET = "what nobody may read"
_JUDGED = {"text": "q", "documents": [{"text": "a", "gain": 1}, {"text": "b", "gain": 0}]}
_GOLD = orjson.dumps({"format": "cascade-gold/1", "queries": [_JUDGED]})


def _bundle(folder: Path, **changes: Any) -> Bundle:
    return load_bundle(write_release(folder, **changes).path, offline({}))


def test_the_rules_are_said_in_words() -> None:
    """Steps, limits, what is scored beside, prices, and what is asked beforehand."""
    assert rollout_lines(RolloutRules()) == [
        "1% -> 5% -> 25% -> 100%, at least 500 answers and 60 s at each, the first 20 not counted as late or degraded",
        (
            "beyond the stable release at most late 1%, errors 0.5%, fallback 2%, escalation 10%, cost 25%, "
            "ranking loss 0.01 nDCG, drift PSI 0.25, at alpha 0.05"
        ),
        "5% of requests scored beside: 4 at once, 64 waiting, 64000000 bytes, 2000 ms each",
        "a pair costs 0.1 at the small stage and 1 at the large one",
        "judged queries none, smoke queries none",
    ]
    off = RolloutRules.model_validate(
        {"guardrails": {"late": None, "fallback": 0.0204}, "smoke": [{"query": "q", "documents": ["d"]}]}
    )
    lines = rollout_lines(off)
    assert "late off, errors 0.5%, fallback 2.04%" in lines[1]
    assert lines[4] == "judged queries none, smoke queries 1"


def test_another_rollout_changes_nothing_for_traffic_and_is_told(tmp_path: Path) -> None:
    """Each key that differs, before and after, by as little as that is; and that its smoke queries do as well."""
    smoke = [{"query": "q", "documents": ["d"]}]
    rules = {"steps": [10, 100], "guardrails": {"late": 0.0104, "errors": None}, "smoke": smoke}
    one, other = _bundle(tmp_path / "one"), _bundle(tmp_path / "other", rollout=rules)
    assert differences(one, other) == []
    assert rollout_differences(one, one) == []
    assert rollout_differences(one, other) == [
        "rollout.guardrails.errors: 0.005 -> not there",
        "rollout.guardrails.late: 0.01 -> 0.0104",
        "rollout.steps: [1.0,5.0,25.0,100.0] -> [10.0,100.0]",
        "rollout: the smoke queries are others",
    ]


def test_smoke_queries_are_shown_and_compared_without_their_text(tmp_path: Path) -> None:
    """How many there are, and that they are others."""
    asked: list[dict[str, Any]] = [{"rollout": {"smoke": [{"query": _SECRET, "documents": [text]}]}} for text in "ab"]
    one, other = _bundle(tmp_path / "one", **asked[0]), _bundle(tmp_path / "other", **asked[1])
    assert rollout_differences(one, other) == ["rollout: the smoke queries are others"]
    lines = description(one)
    assert any("smoke queries 1" in line for line in lines)
    assert _SECRET not in "\n".join(lines)


def test_judged_queries_are_packed_and_what_is_missing_or_unreadable_is_an_error(tmp_path: Path) -> None:
    """They are an artefact of the release like its calibration."""
    digest = artefact_digest(_GOLD)
    written = write_release(tmp_path, rollout={"gold": digest})
    missing = [finding.what for finding in verify(written.path, {}).findings]
    assert any(what.startswith(f"rollout, artefact {digest}: no file has this digest") for what in missing)
    (tmp_path / "calibration" / "gold.json").write_bytes(_GOLD)
    build_bundle(written.path, tmp_path / "bundle", {})
    assert (tmp_path / "bundle" / "artifacts" / f"{digest.removeprefix('sha256:')}.json").read_bytes() == _GOLD
    assert not any(finding.what.startswith("rollout") for finding in verify(tmp_path / "bundle", {}).findings)
    (tmp_path / "calibration" / "text.json").write_bytes(b"no JSON")
    broken = write_release(tmp_path, rollout={"gold": artefact_digest(b"no JSON")})
    assert any(finding.what.startswith("rollout, gold: no JSON") for finding in verify(broken.path, {}).findings)
