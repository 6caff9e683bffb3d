"""Records of every shape that the recorder writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from cascade.policy.release import parse_release
from cascade.telemetry.record_file import Record
from cascade.telemetry.records import Assignment, Decided, RecordFormat, Source
from cascade.testing.calibration import scripted_calibration
from cascade.text import Text
from cascade.types import Arm, Candidate, Request, StageName
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of

__all__ = ["CANARY_TEXT", "every_record", "plain_record"]

CANARY_TEXT: Final = "kingfisher 7f3a"
_BEGAN: Final = datetime(2026, 11, 29, 12, 0, 0, 123456, UTC)
_RULE: Final = {
    "kind": "calibrated",
    "calibration": f"sha256:{'0' * 64}",
    "k": 5,
    "price_per_pair": 0.01,
    "safe_top_m": 1,
}
_CASCADE: Final = parse_release(release_data())
_OBSERVE: Final = parse_release(release_data(mode="observe", depth=3, escalation=_RULE))
_CANDIDATES: Final = (
    Candidate(Text(CANARY_TEXT), CANARY_TEXT, {"bm25": 2.5, "dense": 0.25, CANARY_TEXT: 1.0}),
    Candidate(Text("bread"), None, {"bm25": 1.5}),
    Candidate(Text(""), "d3", {"dense": 0.125}),
)
_REQUEST: Final = Request(Text(CANARY_TEXT), _CANDIDATES, tenant="acme", instruction=Text(CANARY_TEXT))


def _format(release: Any, digest: str, scorers: dict[str, Any]) -> RecordFormat:
    return RecordFormat(
        Source(release, digest, "sha256:p", 0.5, lambda: scorers, lambda text: f"{len(text):016x}"),
    )


def every_record() -> list[Record]:
    """Return a plain record, one of each arm, of mode observe with and without a calibration, and an empty one."""
    scorers = {
        "small": {
            "stage": "small",
            "fingerprint": {"model": "m", "max_length": 512, "revision": None},
            "observed": None,
        }
    }
    cascade, observe = _format(_CASCADE, "sha256:r", {}), _format(_OBSERVE, "sha256:o", scorers)
    plain = Decided(
        _REQUEST,
        decision(
            candidates=3, depth=3, escalated=(2, 1), query_hash="ab" * 8, signals={"bm25.gap": 0.5, "x": float("nan")}
        ),
        _CASCADE,
        None,
        small={0: 1.25, 1: -0.5},
        large={1: 3.0},
        excluded=frozenset({2}),
    )
    arms = [
        replace(
            plain,
            decision=replace(plain.decision, id=f"id-{arm}", arm=arm),
            assigned=Assignment(probability, of),
        )
        for arm, probability, of in ((Arm.CANARY, 0.05, None), (Arm.SHADOW, 0.01, "id-1"))
    ]
    large = replace(plain.decision, rounds=(round_of(StageName.LARGE, cost=None),), estimates=None)
    observed = replace(
        plain,
        release=_OBSERVE,
        decision=large,
        small={0: 1.0, 1: 2.0},
        large={0: 1.0, 1: 3.0},
        beside=round_of(StageName.SMALL, sent=3),
    )
    blank = replace(
        plain,
        request=Request(Text("  "), (Candidate(Text("")),)),
        decision=replace(plain.decision, candidates=1, depth=0, escalated=(), rounds=(), signals={}),
        small={},
        large={},
        excluded=frozenset(),
    )
    decided: Sequence[tuple[RecordFormat, Decided]] = [
        *((cascade, one) for one in (plain, *arms, blank)),
        (observe, observed),
        (observe, replace(observed, calibration=scripted_calibration(("bm25",)))),
        (observe, replace(observed, beside=None, small={}, dropped=True)),
    ]
    return [form.record(one, _BEGAN + timedelta(milliseconds=place)) for place, (form, one) in enumerate(decided)]


def plain_record(name: str, digest: str = "sha256:r", candidates: int = 3) -> Record:
    """Return a record of a decision id."""
    request = Request(Text("lamp"), tuple(Candidate(Text(f"a lamp {place}")) for place in range(candidates)))
    taken = decision(
        id=name,
        candidates=candidates,
        top_n=1,
        depth=candidates,
        escalated=(0,),
        query_hash=blake2b(name.encode(), digest_size=8).hexdigest(),
    )
    scores = {place: float(place) / 7 for place in range(candidates)}
    return _format(_CASCADE, digest, {}).record(Decided(request, taken, _CASCADE, None, scores, {0: 1.0}), _BEGAN)
