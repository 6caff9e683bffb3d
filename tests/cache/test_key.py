"""What a score is kept under."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.cache.key import KEY_BYTES, KeyMaker, identity_of
from cascade.stages.base import Observed
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage, fingerprint
from cascade.text import Text
from cascade.types import Fingerprint, ScoreSpace
from tests.cache.arrange import SECRET, arranged, by_length, spec_of, texts

_OTHER: Final[dict[str, Any]] = {
    "model": "other",
    "revision": "abc",
    "dtype": "float16",
    "quantization": "int8",
    "serializer": "single-line@1",
    "tokenizer_revision": "abc",
    "max_length": 256,
    "engine": "tei/1.8",
    "score_space": "probability",
    "url": "http://other.example",
    "adapter": "vllm",
}
_TEXTS = st.text(max_size=12)


def _keys(
    written: list[str], *, query: str = "q", name: str = "passthrough@1", max_length: int = 512, **more: Any
) -> list[bytes]:
    asked: dict[str, Any] = {"tenant": None, "instruction": None} | more
    maker = KeyMaker(asked.pop("secret", SECRET))
    made = maker.of_query(b"identity", serializer(name), Text(query), max_length=max_length, **asked)
    return made.of_pairs(texts(*written))


@pytest.mark.parametrize("field", _OTHER)
def test_f1_a_stage_that_differs_in_what_it_declares_misses(field: str) -> None:
    """No field of a stage that its scores may depend on is left out of the key."""

    async def run() -> None:
        first = arranged()
        await first.score("a", "bb")
        same = first.beside()
        await same.score("a", "bb")
        assert same.sent == []
        other = first.beside(**{field: _OTHER[field]})
        await other.score("a", "bb")
        assert other.sent == [["a", "bb"]]

    run_virtual(run())


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        ({}, {"instruction": "Find the answer."}),
        ({}, {"tenant": "acme"}),
        ({}, {"tenant": ""}),
        ({}, {"query": "r"}),
        ({"adapter": "vllm", "instruction": "Find the answer."}, {}),
    ],
)
def test_f1_another_instruction_tenant_or_query_misses(declared: dict[str, Any], asked: dict[str, Any]) -> None:
    """What is scored for one tenant, query or instruction answers no other, the release's instruction too."""

    async def run() -> None:
        first = arranged(adapter=declared.get("adapter", "tei"))
        await first.score("a")
        other = first.beside(**declared) if declared else first
        before = len(other.sent)
        await other.score("a", **asked)
        assert other.sent[before:] == [["a"]]

    run_virtual(run())


@pytest.mark.parametrize("field", [item.name for item in fields(Fingerprint)])
def test_f1_every_field_of_a_fingerprint_counts(field: str) -> None:
    """A field that is added to the fingerprint is in the key without anybody thinking of it."""
    one = fingerprint()
    value: Any = getattr(one, field)
    other: Any = value + 1 if isinstance(value, int) else f"{value}x"
    changed: Any = {field: ScoreSpace.COSINE if field == "score_space" else other}
    spec = spec_of()
    assert identity_of(spec, one, None) != identity_of(spec, replace(one, **changed), None)


@pytest.mark.parametrize(
    "said",
    [
        Observed(model="m"),
        Observed(revision="abc"),
        Observed(dtype="float16"),
        Observed(version="1.9.3"),
        Observed(max_length=512),
    ],
)
def test_f1_what_a_server_says_counts(said: Observed) -> None:
    """A server that says it is another is another, whatever the release declares."""
    spec, declared = spec_of(), fingerprint()
    assert identity_of(spec, declared, None) != identity_of(spec, declared, said)
    assert identity_of(spec, declared, Observed()) == identity_of(spec, declared, Observed(max_texts=3))


def test_how_a_server_is_reached_does_not_count() -> None:
    """Retries, limits and keys change no score, so what is kept outlives a change of them."""
    plain = spec_of()
    other = spec_of(
        auth={"env": "KEY"},
        ca_bundle="/ca.pem",
        client_certificate={"certificate": "/tls.crt", "key": "/tls.key"},
        connect_ms=7,
        max_in_flight_texts=7,
        max_in_flight_tokens=700,
        adaptive_limit=False,
        retries=0,
        retry_share=0.0,
        breaker={"open_s": 1.0},
    )
    told = fingerprint_of(plain, serializer(plain.serializer))
    assert identity_of(plain, told, None) == identity_of(other, told, None)


def test_the_callers_instruction_is_the_releases_where_they_are_the_same() -> None:
    """A caller who writes what the release says asks the model the same."""

    async def run() -> None:
        stage = arranged(adapter="vllm", instruction="Find the answer.")
        await stage.score("a")
        await stage.score("a", instruction="Find the answer.")
        assert stage.sent == [["a"]]

    run_virtual(run())


@given(st.lists(_TEXTS, min_size=1, max_size=6), st.tuples(_TEXTS, _TEXTS), st.tuples(_TEXTS, _TEXTS))
def test_two_keys_are_the_same_only_for_the_same_input(
    documents: list[str], queries: tuple[str, str], instructions: tuple[str, str]
) -> None:
    """Nothing of one part can stand for the end or the beginning of another."""
    one, other = (
        _keys(documents, query=query, instruction=instruction)
        for query, instruction in zip(queries, instructions, strict=True)
    )
    same = queries[0] == queries[1] and instructions[0] == instructions[1]
    assert (one == other) is same
    assert all((a == b) is (one[i] == one[j]) for i, a in enumerate(documents) for j, b in enumerate(documents))
    assert all(len(key) == KEY_BYTES for key in one)


def test_a_key_cannot_be_made_without_the_secret() -> None:
    """Two processes with random secrets share nothing, and nobody who reads keys can try texts."""
    assert _keys(["a"]) != _keys(["a"], secret=b"another secret of no one")
    assert _keys(["a"]) == _keys(["a"])


def test_a_tenant_is_not_an_instruction_and_none_is_not_empty() -> None:
    """Parts stay apart, and what is not given is not the empty text."""
    assert _keys(["a"], tenant="x") != _keys(["a"], instruction="x")
    assert _keys(["a"], tenant="") != _keys(["a"])


def test_only_what_the_serializer_makes_equal_is_equal() -> None:
    """White space counts but to a serializer that makes every run of it a space; case and form count always."""
    flat: Any = {"name": "single-line@1"}
    assert _keys(["a  b", "a\nb", " a b "], **flat) == [_keys(["a b"], **flat)[0]] * 3
    assert _keys(["a"], query="q \n r", **flat) == _keys(["a"], query="q r", **flat)
    assert len(set(_keys(["a  b", "a\nb", " a b "]))) == 3
    assert len(set(_keys(["cafe\u0301", "caf\u00e9", "Café"], **flat))) == 3


def test_white_space_in_what_may_be_cut_counts() -> None:
    """A long text is cut before it is made one line, so that two that become equal may be sent as two."""
    long = "a" * 300
    assert len(set(_keys([f"{long} b", f"{long}  b"], name="single-line@1", max_length=512))) == 2
    assert len(set(_keys([f"{long} b", f"{long}  b"], name="single-line@1", max_length=2048))) == 1
    longer = "a" * 1001
    assert len(set(_keys([f"{longer} b", f"{longer}  b"], name="single-line@1", max_length=131_072))) == 2


def _list_keys(*written: str) -> list[bytes]:
    maker = KeyMaker(SECRET)
    made = maker.of_query(
        b"identity", serializer("passthrough@1"), Text("q"), tenant=None, instruction=None, max_length=512
    )
    return made.of_list(texts(*written))


def test_f1_a_list_is_keyed_as_a_whole() -> None:
    """In a listwise stage each place depends on all documents and on their order."""
    one = _list_keys("a", "b", "c")
    assert len(set(one)) == 3
    for other in (
        _list_keys("a", "c", "b"),
        _list_keys("a", "b"),
        _list_keys("a", "b", "d"),
        _list_keys("ab", "", "c"),
    ):
        assert not set(one) & set(other)
    assert not set(one) & set(_keys(["a", "b", "c"]))
    assert _list_keys("a", "b", "c") == one


def test_f1_a_listwise_stage_is_answered_for_the_whole_list_or_not_at_all() -> None:
    """A list that differs in one document, or in order, is scored anew as a whole."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, is_listwise=True))
        first = await stage.score("a", "bb", "")
        again = await stage.score("a", "bb", "")
        assert again.scores == first.scores == (1.01, 2.01, None)
        assert stage.sent == [["a", "bb"]]
        await stage.score("bb", "a")
        await stage.score("a", "bb", "ccc")
        await stage.score("a")
        assert stage.sent[1:] == [["bb", "a"], ["a", "bb", "ccc"], ["a"]]

    run_virtual(run())
