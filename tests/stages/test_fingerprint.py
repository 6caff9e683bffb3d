"""Fingerprints: what a stage's scores depend on."""

from __future__ import annotations

from dataclasses import fields

import pytest

from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.types import Fingerprint, ScoreSpace

from .arrange import tei_spec

DECLARED = {
    "model": "m1",
    "revision": "r1",
    "quantization": "int8",
    "dtype": "float16",
    "engine": "tei/1.8",
    "serializer": "single-line@1",
    "tokenizer_revision": "t1",
    "max_length": 1024,
    "score_space": "probability",
}


def test_e2_a_fingerprint_holds_what_the_release_declares() -> None:
    """Every declared field is in it, and the digest of the serializer."""
    single = serializer("single-line@1")
    assert fingerprint_of(tei_spec(**DECLARED), single) == Fingerprint(
        model="m1",
        revision="r1",
        quantization="int8",
        dtype="float16",
        engine="tei/1.8",
        serializer="single-line@1",
        serializer_sha256=single.sha256,
        tokenizer_revision="t1",
        max_length=1024,
        score_space=ScoreSpace.PROBABILITY,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "m2"),
        ("revision", "r2"),
        ("quantization", "none"),
        ("dtype", "bfloat16"),
        ("engine", "tei/1.9"),
        ("serializer", "passthrough@1"),
        ("tokenizer_revision", None),
        ("max_length", 512),
        ("score_space", "logit"),
    ],
)
def test_e2_any_difference_that_moves_scores_is_a_different_fingerprint(field: str, value: object) -> None:
    """Two stages are alike only where all of it is alike."""
    before, after = tei_spec(**DECLARED), tei_spec(**{**DECLARED, field: value})
    assert fingerprint_of(before, serializer(before.serializer)) != fingerprint_of(after, serializer(after.serializer))


def test_e2_where_a_server_is_reached_does_not_change_the_fingerprint() -> None:
    """Address, token and chunk sizes move no score."""
    moved = tei_spec(**DECLARED, url="http://elsewhere.test", chunk_texts=3, auth={"env": "KEY"})
    single = serializer("single-line@1")
    assert fingerprint_of(moved, single) == fingerprint_of(tei_spec(**DECLARED), single)
    assert {field.name for field in fields(Fingerprint)} == {*DECLARED, "serializer_sha256", "instruction"}
