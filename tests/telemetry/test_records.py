"""Decision records: what a line says, and what none does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.decision import DegradedReason
from cascade.policy.release import parse_release
from cascade.telemetry.records import FORMAT, KEY_CHECK, Assignment, Decided, RecordFormat, Source, is_sampled
from cascade.testing.calibration import scripted_calibration
from cascade.text import Text
from cascade.types import Arm, Candidate, Request, StageName
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of

_AT: Final = datetime(2026, 11, 29, 12, 0, 0, 123456, UTC)
_CANDIDATES: Final = (
    Candidate(Text("a lamp"), "d1", {"bm25": 2.5, "dense": 0.25}),
    Candidate(Text("bread"), None, {"bm25": 1.5}),
    Candidate(Text(""), "d3", {"dense": 0.125}),
)
_REQUEST: Final = Request(Text("which lamp E1234"), _CANDIDATES, tenant="acme")
_CASCADE: Final = parse_release(release_data())
_OBSERVE: Final = parse_release(release_data(mode="observe", depth=2, escalation={"kind": "static", "top_m": 1}))
_DECIDED: Final = Decided(
    _REQUEST,
    decision(candidates=3, tenant="acme", query_hash="ab" * 8),
    _CASCADE,
    None,
    small={0: 1.25, 1: -0.5},
    large={1: 3.0},
    excluded=frozenset({2}),
)


def _hash(text: str) -> str:
    return sha256(b"key" + text.encode()).hexdigest()[:16]


def _format(**changes: Any) -> RecordFormat:
    scorers = {"small": {"stage": "small", "fingerprint": {"model": "m"}, "observed": None}}
    fields: dict[str, Any] = {
        "release": _CASCADE,
        "release_digest": "sha256:release",
        "policy_digest": "sha256:policy",
        "sample": 1.0,
        "scorers": lambda: scorers,
        "hash_text": _hash,
    }
    return RecordFormat(Source(**(fields | changes)))


def _line(decided: Decided, **changes: Any) -> dict[str, Any]:
    line = _format(**changes).record(decided, _AT).line
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    read: dict[str, Any] = orjson.loads(line)
    return read


def test_a_head_says_what_the_scores_depend_on() -> None:
    """Release, digests, mode, fingerprints and which key; its id changes with any of them and with nothing else."""
    first, again = (orjson.loads(_format().record(_DECIDED, _AT).head) for _ in range(2))
    assert first == again
    identity = first.pop("id")
    assert first == {
        "kind": "head",
        "format": FORMAT,
        "release": "r1",
        "release_digest": "sha256:release",
        "policy_digest": "sha256:policy",
        "mode": "cascade",
        "key": _hash(KEY_CHECK),
        "scorers": {"small": {"stage": "small", "fingerprint": {"model": "m"}, "observed": None}},
    }
    others = [
        _format(release_digest="sha256:other"),
        _format(release=_OBSERVE),
        _format(scorers=dict),
        _format(hash_text=lambda text: "0" * 16),
    ]
    ids = {orjson.loads(other.record(_DECIDED, _AT).head)["id"] for other in others}
    assert len(ids | {identity}) == 5


def test_a_head_tells_what_servers_said_when_the_request_was_decided() -> None:
    """By the time that the record is made its stage may be closed, and say nothing any more."""
    scorers: dict[str, Any] = {"small": {"stage": "small", "fingerprint": {"model": "m"}, "observed": {"version": "1"}}}
    make = _format(scorers=lambda: dict(scorers)).making(_DECIDED, _AT)
    scorers["small"] = scorers["small"] | {"observed": None}
    assert orjson.loads(make().head)["scorers"]["small"]["observed"] == {"version": "1"}


@pytest.mark.parametrize(
    ("fail_closed", "fallback", "degraded", "outcome"),
    [
        (False, "original-order", ("stage_timeout",), "answered"),
        (True, "original-order", ("stage_timeout",), "refused"),
        (False, "error", ("stage_timeout",), "refused"),
        (True, "error", (), "answered"),
    ],
)
def test_a_line_tells_whether_an_error_stood_in_place_of_the_answer(
    fail_closed: bool, fallback: str, degraded: tuple[str, ...], outcome: str
) -> None:
    """Where the caller wanted that of a degraded answer, or the release."""
    decided = replace(
        _DECIDED,
        request=replace(_REQUEST, fail_closed=fail_closed),
        release=parse_release(release_data(fallback=fallback)),
        decision=replace(_DECIDED.decision, degraded=tuple(map(DegradedReason, degraded))),
    )
    assert _line(decided)["outcome"] == outcome


def test_a_line_names_its_head_and_says_everything_by_position() -> None:
    """Ids are hashes, scores raw, and what is not there is null."""
    written = _format().record(_DECIDED, _AT)
    line = _line(_DECIDED)
    assert line["head"] == orjson.loads(written.head)["id"]
    wanted = {
        "kind": "decision",
        "time": "2026-11-29T12:00:00.123+00:00",
        "decision_id": "id-1",
        "tenant": "acme",
        "query_hash": "ab" * 8,
        "q_class": "identifier",
        "q_tokens": 5,
        "q_identifiers": 1,
        "signals": {"bm25.gap": 0.5},
        "action": "cluster",
        "escalated": [3, 1],
        "arm": "stable",
        "of": None,
        "sample": 1.0,
        "propensity": 1.0,
        "degraded": [],
        "excluded": [2],
        "ids": [_hash("d1"), _hash("bread"), _hash("d3")],
        "tokens": [5 + 2 + 4, 5 + 1 + 4, 5 + 1 + 4],
        "channels": {"bm25": [2.5, 1.5, None], "dense": [0.25, None, 0.125]},
        "channels_left_out": 0,
        "small": [1.25, -0.5, None],
        "large": [None, 3.0, None],
        "instruction": None,
        "beside": None,
        "would": None,
    }
    assert {name: line[name] for name in wanted} == wanted
    assert [each["stage"] for each in line["rounds"]] == ["small", "large"]
    assert line["estimates"]["margin"] == 0.25


def test_in_mode_observe_the_small_round_and_the_shadow_are_told() -> None:
    """The rounds tell of the one beside the answer, and ``would`` of the decision that was not taken."""
    decided = replace(
        _DECIDED,
        release=_OBSERVE,
        decision=replace(_DECIDED.decision, rounds=(round_of(StageName.LARGE),)),
        large={0: 1.0, 1: 3.0},
        beside=round_of(StageName.SMALL, sent=3),
    )
    line = _line(decided, release=_OBSERVE)
    assert [(each["stage"], each["outcome"]) for each in line["rounds"]] == [("large", "ok"), ("small", "ok")]
    assert line["beside"] == "ok"
    assert line["would"] == {
        "depth": 2,
        "depth_reason": "fixed",
        "action": "static",
        "escalated": [0],
        "rounds": 1,
        "estimates": None,
        "misfit": None,
        "query_class": None,
        "signals": {},
    }


def test_a_calibration_estimates_in_the_shadow() -> None:
    """What a calibrated release would have known is told to six places; without its calibration, why it would not."""
    rule = {"kind": "calibrated", "calibration": f"sha256:{'0' * 64}", "k": 5, "price_per_pair": 0.01, "safe_top_m": 1}
    release = parse_release(release_data(mode="observe", depth=3, escalation=rule))
    decided = replace(_DECIDED, release=release, beside=round_of(StageName.SMALL))
    known = _line(replace(decided, calibration=scripted_calibration(("bm25",))))["would"]
    assert known["misfit"] is None
    assert set(known["estimates"]) == {"k", "p_first", "margin", "entropy", "expected_loss", "p_acceptable"}
    unknown = _line(decided)["would"]
    assert (unknown["action"], unknown["misfit"], unknown["escalated"]) == ("safe", "no_calibration", [0])


@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        ({"dropped": True}, "dropped"),
        ({"beside": round_of(StageName.SMALL, outcome="stage_timeout", cost=None)}, "stage_timeout"),
    ],
)
def test_without_small_scores_there_is_no_shadow(changes: dict[str, Any], beside: str) -> None:
    """The record says why the small stage said nothing."""
    line = _line(replace(_DECIDED, release=_OBSERVE, small={}, **changes))
    assert (line["beside"], line["would"]) == (beside, None)


def test_the_share_of_the_sample_is_the_propensity() -> None:
    """Where traffic is not split the action was certain, that it would be recorded was not."""
    line = _line(_DECIDED, sample=0.25)
    assert (line["sample"], line["propensity"]) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("arm", "assigned"),
    [
        (Arm.STABLE, Assignment(0.95)),
        (Arm.CANARY, Assignment(0.05)),
        (Arm.SHADOW, Assignment(0.01, of="id-0")),
    ],
)
def test_an_arm_is_told_with_its_probability(arm: Arm, assigned: Assignment) -> None:
    """The propensity is that of the arm and of being recorded; a shadow names the decision that it shadows."""
    decided = replace(_DECIDED, decision=replace(_DECIDED.decision, arm=arm), assigned=assigned)
    line = _line(decided, sample=0.5)
    assert (line["arm"], line["of"], line["sample"]) == (arm, assigned.of, 0.5)
    assert line["propensity"] == pytest.approx(0.5 * assigned.probability)


def test_channels_whose_name_may_be_text_are_counted_only() -> None:
    """Names of letters, digits, dots, dashes and underscores are kept, sixteen at most."""
    scores = {"a b": 1.0, "kingfisher\n": 1.0, "日本": 1.0, "": 1.0} | {f"c{number}": 1.0 for number in range(20)}
    request = replace(_REQUEST, candidates=(Candidate(Text("a"), None, scores),))
    line = _line(replace(_DECIDED, request=request))
    assert list(line["channels"]) == [f"c{number}" for number in range(16)]
    assert line["channels_left_out"] == 8


@given(st.text(min_size=1), st.text(min_size=1), st.none() | st.text(min_size=1), st.none() | st.text(min_size=1))
def test_no_text_is_in_a_line(query: str, document: str, name: str | None, instruction: str | None) -> None:
    """Query, documents, ids and instruction appear as hashes; whatever they are, the line is the same but for them."""

    def written(query: str, document: str, name: str | None, instruction: str | None) -> dict[str, Any]:
        given_text = None if instruction is None else Text(instruction)
        request = Request(Text(query), (Candidate(Text(document), name),), instruction=given_text)
        return _line(replace(_DECIDED, request=request))

    line = written(query, document, name, instruction)
    assert line["ids"] == [_hash(document if name is None else name)]
    assert line["instruction"] == (None if instruction is None else _hash(instruction))
    plain = written("x", "x", None, None)
    derived = {"ids", "instruction", "tokens", "q_tokens", "q_class", "q_identifiers"}
    assert {key: value for key, value in line.items() if key not in derived} == {
        key: value for key, value in plain.items() if key not in derived
    }


@given(st.integers(0, 2**64 - 1), st.floats(0, 1))
def test_a_query_is_always_in_the_sample_or_never(number: int, share: float) -> None:
    """It depends on the hash alone, all are in a whole sample and none in one of nothing, and a larger one holds a smaller."""
    query_hash = f"{number:016x}"
    assert is_sampled(query_hash, 1.0)
    assert not is_sampled(query_hash, 0.0)
    assert is_sampled(query_hash, share) <= is_sampled(query_hash, min(1.0, share * 1.5))


def test_a_sample_has_about_its_share() -> None:
    """Of a thousand hashes about a quarter is in a quarter."""
    kept = sum(is_sampled(_hash(str(number)), 0.25) for number in range(1000))
    assert 200 < kept < 300
