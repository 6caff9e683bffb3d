"""The one list of what spans may hold."""

from __future__ import annotations

import pytest

from cascade.decision import DegradedReason
from cascade.telemetry.span_schema import ATTRIBUTES, SPANS, Attribute, Kind, SpanName, Value, admitted
from cascade.types import StageName

_GOOD: dict[Kind, Value] = {Kind.WORD: "word", Kind.WORDS: ("a", "b"), Kind.COUNT: 3, Kind.MS: 1.5, Kind.FLAG: True}


def test_g2_h7_every_span_and_attribute_is_listed() -> None:
    """Each has a meaning and a place; the operation is named as the proposal names it."""
    assert set(SPANS) == set(SpanName)
    assert set(ATTRIBUTES) == set(Attribute)
    assert all(told.spans and told.what for told in ATTRIBUTES.values())
    assert {name for name in Attribute if not name.startswith("cascade.")} == {
        "error.type",
        "gen_ai.operation.name",
        "gen_ai.request.model",
        "gen_ai.rerank.candidate.count",
        "gen_ai.rerank.top_n",
        "http.request.method",
        "http.request.resend_count",
        "http.response.status_code",
        "http.route",
        "server.address",
        "server.port",
    }
    assert not [name for name in Attribute if any(part in name for part in ("text", "tenant", "document", "query.id"))]


@pytest.mark.parametrize("name", Attribute)
def test_g2_an_attribute_leaves_where_it_is_listed_and_is_of_its_kind(name: Attribute) -> None:
    """On another span, or as another kind of value, it is left out."""
    told = ATTRIBUTES[name]
    for span in SpanName:
        left = admitted(span, {name: _GOOD[told.kind]})
        assert left == ({str(name): _GOOD[told.kind]} if span in told.spans else {})
    where = min(told.spans)
    for kind, value in _GOOD.items():
        assert bool(admitted(where, {name: value})) is (kind is told.kind)


@pytest.mark.parametrize("value", ["a\nb", "x" * 201, "tab\there", "\0"])
def test_a_word_is_short_and_of_one_line(value: str) -> None:
    """What is no name is no word."""
    assert admitted(SpanName.RERANK, {Attribute.RELEASE: value}) == {}
    assert admitted(SpanName.RERANK, {Attribute.DEGRADED_REASONS: ("fine", value)}) == {}


def test_words_leave_as_plain_strings() -> None:
    """Members of enumerations, alone and in lists."""
    attributes: dict[Attribute, Value] = {
        Attribute.STAGE: StageName.LARGE,
        Attribute.DEGRADED_REASONS: (DegradedReason.LOAD_LEVEL,),
    }
    left = admitted(SpanName.RERANK, attributes)
    assert left == {"cascade.stage": "large", "cascade.degraded.reasons": ("load_level",)}
    assert {type(value) for value in (left["cascade.stage"], *left["cascade.degraded.reasons"])} == {str}  # type: ignore[misc]


def test_g2_what_is_not_listed_is_left_out() -> None:
    """A key that is no attribute leaves in no span."""
    assert admitted(SpanName.RERANK, {"gen_ai.rerank.query.text": "kingfisher"}) == {}  # type: ignore[dict-item]
