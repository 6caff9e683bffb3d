"""Fingerprints: what a stage's scores depend on."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

import pytest

from cascade.policy.release import EmbeddingStage, OnnxStage
from cascade.stages.fingerprint import completed, fingerprint_of
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


_ONNX: Final[dict[str, Any]] = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "f"}}
_BUDGET: Final = {"mode": "token-budget", "max_total_tokens": 512}


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, None),
        ({"batching": {"mode": "one-pair"}, "cached_token_bytes": 0}, None),
        ({"batching": _BUDGET}, "batches"),
        ({"batching": {**_BUDGET, "max_pairs": 4, "max_wait_ms": 2.0, "max_total_tokens": 64}}, "batches"),
        ({"windows": {"most": 3, "overlap_tokens": 16}}, "windows=3/16"),
        ({"activation": "sigmoid", "score_space": "probability"}, "sigmoid"),
        (
            {"batching": _BUDGET, "windows": {}, "activation": "sigmoid", "score_space": "probability"},
            "batches windows=4/32 sigmoid",
        ),
    ],
)
def test_e2_how_the_engine_runs_a_model_is_part_of_it_as_far_as_it_moves_scores(
    changes: dict[str, Any], mode: str | None
) -> None:
    """One pair a call, windows and activation count; the numbers of a batch, and what is kept, do not."""
    spec = OnnxStage.model_validate({**_ONNX, **changes})
    assert fingerprint_of(spec, serializer(spec.serializer)).mode == mode


@pytest.mark.parametrize(("changes", "mode"), [({}, None), ({"pooling": "cls"}, None), ({"pooling": "mean"}, "mean")])
def test_e2_how_states_become_a_vector_is_part_of_it(changes: dict[str, Any], mode: str | None) -> None:
    """The mean of all tokens scores otherwise than the first token."""
    spec = EmbeddingStage.model_validate({**_ONNX, "adapter": "onnx-embedding", **changes})
    assert fingerprint_of(spec, serializer(spec.serializer)).mode == mode


def test_e2_what_was_written_before_there_was_a_mode_ran_one_pair_a_call() -> None:
    """An older fingerprint is that of a stage without a mode, and not of one with batches."""
    plain, batched = (OnnxStage.model_validate({**_ONNX, **more}) for more in ({}, {"batching": _BUDGET}))
    now = asdict(fingerprint_of(plain, serializer(plain.serializer)))
    before = {name: value for name, value in now.items() if name != "mode"}
    assert completed(before) == completed(now) == now
    assert completed(before) != asdict(fingerprint_of(batched, serializer(batched.serializer)))


def test_e2_where_a_server_is_reached_does_not_change_the_fingerprint() -> None:
    """Address, token and chunk sizes move no score."""
    moved = tei_spec(**DECLARED, url="http://elsewhere.test", chunk_texts=3, auth={"env": "KEY"})
    single = serializer("single-line@1")
    assert fingerprint_of(moved, single) == fingerprint_of(tei_spec(**DECLARED), single)
    assert {field.name for field in fields(Fingerprint)} == {*DECLARED, "serializer_sha256", "instruction", "mode"}
