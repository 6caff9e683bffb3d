"""The type that query and document text travels in."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import traceback
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.text import Text
from cascade.types import Candidate

_SECRET = "canary-5f3a"
_TEXT = Text(_SECRET)

_SHOWN: dict[str, Callable[[], str]] = {
    "repr": lambda: repr(_TEXT),
    "str": lambda: str(_TEXT),
    "format": lambda: format(_TEXT, ">40"),
    "f-string": lambda: f"{_TEXT} {_TEXT!r} {_TEXT!s} {_TEXT!a} {_TEXT:x}",
    "percent": lambda: "%s %r %a" % (_TEXT, _TEXT, _TEXT),  # noqa: UP031 - the old form is what is tested
    "str.format": lambda: "{0} {0!r} {0:5}".format(_TEXT),  # noqa: UP032 - the old form is what is tested
    "container": lambda: f"{[_TEXT]} { {'text': _TEXT} } {Candidate(_TEXT)}",
    "exception": lambda: f"{ValueError(_TEXT)} {ValueError(_TEXT)!r}",
    "log record": lambda: logging.LogRecord("n", 10, "p", 1, "%s", (_TEXT,), None).getMessage(),
    "json with a default": lambda: json.dumps(_TEXT, default=str),
    "orjson with a default": lambda: orjson.dumps(_TEXT, default=repr).decode(),
    "traceback": lambda: "".join(traceback.format_exception_only(ValueError(_TEXT))),
}

_REFUSED: dict[str, Callable[[], object]] = {
    "json": lambda: json.dumps(_TEXT),
    "orjson": lambda: orjson.dumps(_TEXT),
    "pickle": lambda: pickle.dumps(_TEXT),
    "pickle in a container": lambda: pickle.dumps({"text": [_TEXT]}),
    "copy": lambda: copy.copy(_TEXT),
    "deepcopy": lambda: copy.deepcopy([_TEXT]),
    "asdict": lambda: dataclasses.asdict(Candidate(_TEXT)),
    "vars": lambda: vars(_TEXT),
    "iteration": lambda: list(_TEXT),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("way", _SHOWN)
def test_g1_text_is_redacted_however_it_is_shown(way: str) -> None:
    """Printing text in any way shows its length, never the text."""
    shown = _SHOWN[way]()
    assert _SECRET not in shown
    assert "Text(<11 characters>)" in shown


@pytest.mark.parametrize("way", _REFUSED)
def test_g1_text_is_never_serialized_or_copied(way: str) -> None:
    """What would carry the text out of sight is refused, without telling the text."""
    with pytest.raises(TypeError) as raised:
        _REFUSED[way]()
    assert _SECRET not in "".join(traceback.format_exception_only(raised.value))


@given(st.text())
def test_only_reveal_gives_the_text(value: str) -> None:
    """The text comes back unchanged from reveal, and its length is its own."""
    assert Text(value).reveal() == value
    assert len(Text(value)) == len(value)


@given(st.text(max_size=2), st.text(max_size=2))
def test_texts_compare_by_value_and_only_with_texts(one: str, other: str) -> None:
    """Equal texts are equal and hash alike; a text never equals a string."""
    assert (Text(one) == Text(other)) == (one == other)
    assert (hash(Text(one)) == hash(Text(other))) == (one == other)
    assert Text(one) != one


@pytest.mark.parametrize(
    "value",
    ["", " ", "\t\n", "\u00a0\u3000", "\x00", "\x1c\x7f\x85", "\u200b", "\ufeff \u200f", "\u3164\ufe0f\U000e0041"],
)
def test_what_nobody_sees_is_blank(value: str) -> None:
    """An empty text, white space in any script, controls, and what Unicode says is to be ignored."""
    assert Text(value).is_blank


@given(st.text(alphabet=st.characters(categories=["Cc", "Zs", "Zl", "Zp"])))
def test_controls_and_white_space_are_blank(value: str) -> None:
    """Whichever there are, in whatever order."""
    assert Text(value).is_blank


@pytest.mark.parametrize(
    "value", ["a", " a ", "0", "\u200ba", "\x00.", "灯", "\u0301", "\ue000", "\U0001fae8", "\ud800"]
)
def test_anything_else_is_not_blank(value: str) -> None:
    """One character that may be seen makes a text."""
    assert not Text(value).is_blank


def test_text_is_immutable() -> None:
    """No attribute can be set, added or deleted, and the text stays what it was."""
    text = Text("as it was")
    for name in ("_value", "other"):
        with pytest.raises(AttributeError, match="Text is immutable"):
            setattr(text, name, "changed")
    with pytest.raises(AttributeError, match="Text is immutable"):
        del text._value
    assert text.reveal() == "as it was"
