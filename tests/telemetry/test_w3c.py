"""Headers of W3C Trace Context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.telemetry.w3c import Parent, baggage_of, parent_of, traceparent

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_SPAN = "b7ad6b7169203331"
_GOOD = f"00-{_TRACE}-{_SPAN}-01"


def test_a_good_parent_is_read() -> None:
    """Ids, the sampled flag and the state are as they were sent; flags that are not known yet do not matter."""
    assert parent_of([_GOOD], ["congo=t61rcWkgMzE,rojo=00f0"]) == Parent(
        int(_TRACE, 16), int(_SPAN, 16), sampled=True, state="congo=t61rcWkgMzE,rojo=00f0"
    )
    for flags, sampled in {"00": False, "01": True, "03": True, "02": False, "ff": True}.items():
        found = parent_of([f"00-{_TRACE}-{_SPAN}-{flags}"])
        assert found is not None
        assert found.sampled is sampled


def test_a_parent_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    """A version above 00 may say more behind the flags."""
    assert parent_of([f"cc-{_TRACE}-{_SPAN}-01-what-the-future-brings"]) == parent_of([_GOOD])
    assert parent_of([f"  {_GOOD}\t"]) == parent_of([_GOOD])


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        _GOOD.upper(),
        f"ff-{_TRACE}-{_SPAN}-01",
        f"00-{_TRACE}-{_SPAN}-01-more",
        f"00-{'0' * 32}-{_SPAN}-01",
        f"00-{_TRACE}-{'0' * 16}-01",
        f"00-{_TRACE[:-1]}-{_SPAN}-01",
        f"00-{_TRACE}-{_SPAN}-1",
        f"00-{_TRACE}-{_SPAN}-0g",
        f"00_{_TRACE}_{_SPAN}_01",
        f"{_GOOD}\n",
        f"cc-{_TRACE}-{_SPAN}-01-{'x' * 600}",
    ],
)
def test_a_bad_parent_is_none(value: str) -> None:
    """What cannot be read begins a new trace."""
    assert parent_of([value]) is None


def test_two_parents_are_none() -> None:
    """Nobody can say which of them it is."""
    assert parent_of([_GOOD, _GOOD]) is None
    assert parent_of([]) is None


@pytest.mark.parametrize(
    ("states", "read"),
    [
        ([], ""),
        (["a=1", "b=2"], "a=1,b=2"),
        ([" a=1 , ,b=2 "], "a=1,b=2"),
        (["fw529a3039@dt=FfAAAQ"], "fw529a3039@dt=FfAAAQ"),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a"], ""),
        (["a=ü"], ""),
        (["a=b=c"], ""),
        ([",".join(f"k{number}=1" for number in range(33))], ""),
        (["a=" + "x" * 510, "b=1"], ""),
    ],
)
def test_a_state_that_breaks_a_rule_is_dropped(states: list[str], read: str) -> None:
    """One that does not is passed on, and the parent stands in any case."""
    found = parent_of([_GOOD], states)
    assert found is not None
    assert found.state == read


@pytest.mark.parametrize(
    ("lengths", "left"),
    [
        ({"a": 250, "b": 250, "c": 250}, "ab"),
        ({"a": 250, "b": 100, "c": 100, "d": 100}, "bcd"),
        ({"a": 125, "b": 125, "c": 125, "d": 126}, "abcd"),
        ({"a": 126, "b": 125, "c": 125, "d": 126}, "abc"),
        ({"a": 120, "b": 120, "c": 120, "d": 120, "e": 120}, "abcd"),
    ],
)
def test_of_a_state_that_is_too_long_whole_members_leave(lengths: dict[str, int], left: str) -> None:
    """As the standard asks: those above 128 characters first, then the last ones, until 512 are left."""
    members = {key: f"{key}={'x' * length}" for key, length in lengths.items()}
    found = parent_of([_GOOD], [",".join(members.values())])
    assert found is not None
    assert found.state == ",".join(members[key] for key in left)
    assert 0 < len(found.state) <= 512


def test_baggage_is_passed_on_as_it_came_within_the_standard() -> None:
    """What is longer, or no header, is dropped."""
    assert baggage_of(["user=1;p=2", "b=3"]) == "user=1;p=2,b=3"
    assert baggage_of(["a" * 8193]) == ""
    assert baggage_of(["a\r\nb: c"]) == ""
    assert baggage_of(["ü=1"]) == ""
    assert baggage_of([]) == ""


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_no_header_is_an_error(parents: list[str], states: list[str]) -> None:
    """Whatever is sent, there is a parent or none."""
    found = parent_of(parents, states)
    assert found is None or (found.trace_id > 0 and found.span_id > 0)
    assert baggage_of(states).isascii()


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_what_leaves_can_be_read(trace_id: int, span_id: int, sampled: bool) -> None:
    """The header of a span names that span."""
    assert parent_of([traceparent(trace_id, span_id, sampled=sampled)]) == Parent(trace_id, span_id, sampled)
