"""Serializers: text in, the model's input out."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.stages.serializers import Serializer, serializer

DRESSED = Serializer("dressed@1", "<q>", "</q>", "<d>", "</d>")


@given(text=st.text())
def test_passthrough_changes_nothing(text: str) -> None:
    """Query and document arrive as they were sent, white space and all."""
    passthrough = serializer("passthrough@1")
    assert (passthrough.query(text), passthrough.document(text)) == (text, text)


@given(text=st.text())
def test_single_line_leaves_one_space_for_each_run_of_white_space(text: str) -> None:
    """Lines and tabs become single spaces, and no word is lost."""
    single = serializer("single-line@1")
    assert single.document(text) == " ".join(text.split())
    assert single.query(text) == single.document(text)


@given(text=st.text())
def test_text_is_joined_and_never_substituted_into(text: str) -> None:
    """Placeholders and markers inside a document stay the document's own characters."""
    assert DRESSED.query(text) == f"<q>{text}</q>"
    assert DRESSED.document(text + "{query}%s</d>") == f"<d>{text}{{query}}%s</d></d>"


def test_e1_the_digest_covers_everything_that_a_serializer_does() -> None:
    """Changing any field changes the digest; equal serializers have equal digests."""
    digests = {DRESSED.sha256}
    for field in fields(Serializer):
        changed: Any = True if field.name == "single_line" else getattr(DRESSED, field.name) + "x"
        digests.add(replace(DRESSED, **{field.name: changed}).sha256)
    assert len(digests) == 1 + len(fields(Serializer))
    assert replace(DRESSED).sha256 == DRESSED.sha256


def test_e1_the_digests_of_published_serializers_never_change() -> None:
    """A release made last year means the same today."""
    assert serializer("passthrough@1").sha256.startswith("aaf7caad1e09d963")
    assert serializer("single-line@1").sha256.startswith("429027a7cf2b4767")


def test_an_unknown_serializer_is_refused_with_the_names_that_are_known() -> None:
    """A misspelt name is a configuration error that helps."""
    with pytest.raises(ConfigError, match=r"'passthrough' is unknown; known are passthrough@1, single-line@1"):
        serializer("passthrough")
