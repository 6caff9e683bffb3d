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
        changed: Any = True if field.name == "single_line" else (getattr(DRESSED, field.name) or "") + "x"
        digests.add(replace(DRESSED, **{field.name: changed}).sha256)
    assert len(digests) == 1 + len(fields(Serializer))
    assert replace(DRESSED).sha256 == DRESSED.sha256


def test_e1_the_digests_of_published_serializers_never_change() -> None:
    """A release made last year means the same today."""
    assert serializer("qwen3-reranker@1").sha256.startswith("2b34d812455893c5")
    assert serializer("passthrough@1").sha256.startswith("4e1c460a1bcc3120")
    assert serializer("single-line@1").sha256.startswith("faf2d72f3054be01")


def test_an_unknown_serializer_is_refused_with_the_names_that_are_known() -> None:
    """A misspelt name is a configuration error that helps."""
    with pytest.raises(
        ConfigError,
        match=r"'passthrough' is unknown; known are listwise@1, passthrough@1, qwen3-reranker@1, single-line@1",
    ):
        serializer("passthrough")


CARD = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
DEFAULT = "Given a web search query, retrieve relevant passages that answer the query"


def card(instruction: str, query: str, document: str) -> str:
    """Write the prompt as the model card of Qwen3-Reranker has it."""
    whole = CARD
    for name, text in (("{instruction}", instruction), ("{query}", query), ("{document}", document)):
        before, _, after = whole.partition(name)
        whole = before + text + after
    return whole


@given(query=st.text(), document=st.text(), instruction=st.none() | st.text(min_size=1))
def test_e1_query_and_document_make_the_prompt_of_the_model_card(
    query: str, document: str, instruction: str | None
) -> None:
    """An engine puts the two end to end: the whole is the card's prompt, with its instruction or the given one."""
    qwen = serializer("qwen3-reranker@1")
    expected = "".join(
        [CARD.partition("{instruction}")[0], instruction or DEFAULT, "\n<Query>: ", query, "\n<Document>: ", document,
         CARD.partition("{document}")[2]]
    )  # fmt: skip
    assert qwen.query(query, instruction) + qwen.document(document) == expected
    assert qwen.owns_template


def test_e1_the_prompt_of_an_example_is_this_text() -> None:
    """One example, written out."""
    qwen = serializer("qwen3-reranker@1")
    query, document = "What is the capital of China?", "The capital of China is Beijing."
    assert qwen.query(query) + qwen.document(document) == card(DEFAULT, query, document)


@given(text=st.text(), instruction=st.text())
def test_a_serializer_without_a_template_takes_no_instruction(text: str, instruction: str) -> None:
    """What the model is told to do is then its server's to say."""
    for name in ("passthrough@1", "single-line@1"):
        plain = serializer(name)
        assert plain.query(text, instruction) == plain.query(text)
        assert not plain.owns_template
