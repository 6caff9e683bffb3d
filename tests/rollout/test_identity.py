"""Whether a stage is what its calibration was fitted on, and what its server says it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import OnnxStage, Release, StageBase, TeiStage, VllmStage, parse_release
from cascade.rollout.identity import Difference, first_said, fitted_for_others, fitted_on_other_weights, not_as_declared
from cascade.rollout.load import UNSET
from cascade.stages.base import Observed
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.testing.calibration import scripted_artefact
from cascade.types import ScoreSpace, StageName

from .arrange import artefact_for, calibrated_data, identity_of, stage_data

_DIGEST = f"sha256:{'0' * 64}"


def _release(**small: Any) -> Release:
    stages = {"small": stage_data("small", **small), "large": stage_data("large")}
    return parse_release(calibrated_data(_DIGEST, stages=stages))


def test_stages_that_are_what_was_fitted_on_have_no_difference() -> None:
    """The fingerprint of a declaration is what a table of its scores keeps."""
    assert fitted_for_others(_release(), artefact_for()) == []


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("model", "org/other", "model: declared org/other, fitted on org/small"),
        ("quantization", "int8", "quantization: declared int8, fitted on none"),
        ("dtype", "float16", "dtype: declared float16, fitted on float32"),
        ("engine", "tei/1.8", "engine: declared tei/1.8, fitted on tei/1.9"),
        ("max_length", 256, "max_length: declared 256, fitted on 512"),
        ("instruction", "Find it.", "instruction: declared Find it., fitted on None"),
    ],
)
def test_a_field_that_differs_is_told(field: str, value: Any, told: str) -> None:
    """Each thing that scores depend on counts, an instruction where there was none too."""
    assert fitted_for_others(_release(**{field: value}), artefact_for()) == [Difference(StageName.SMALL, told)]


def test_another_serializer_differs_by_name_and_content() -> None:
    """Both are in the fingerprint."""
    found = fitted_for_others(_release(serializer="single-line@1"), artefact_for())
    assert [(one.what.partition(":")[0], one.known) for one in found] == [
        ("serializer", True),
        ("serializer_sha256", True),
    ]


def test_what_was_fitted_before_there_was_a_mode_is_of_stages_without_one() -> None:
    """An older calibration goes on to hold for one pair a call, and does not for batches."""
    onnx = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "f"}}
    batches = {**onnx, "batching": {"mode": "token-budget"}}
    plain, batched = (
        parse_release(calibrated_data(_DIGEST, stages={"small": stage, "large": stage_data("large")}))
        for stage in (onnx, batches)
    )
    assert isinstance(plain.stages.small, OnnxStage)
    told = asdict(fingerprint_of(plain.stages.small, serializer(plain.stages.small.serializer)))
    fitted = artefact_for(small={name: value for name, value in told.items() if name != "mode"})
    assert fitted_for_others(plain, fitted) == []
    assert fitted_for_others(batched, fitted) == [Difference(StageName.SMALL, "mode: declared batches, fitted on None")]


@pytest.mark.parametrize("field", ["revision", "tokenizer_revision"])
@pytest.mark.parametrize(("declared", "fitted", "known"), [("a", None, False), (None, "a", False), ("a", "b", True)])
def test_a_revision_that_one_of_the_two_does_not_say_is_not_known_to_differ(
    field: str, declared: str | None, fitted: str | None, *, known: bool
) -> None:
    """Two revisions differ; one and none cannot be told."""
    artefact = artefact_for(small=identity_of(**stage_data("small", **{field: fitted})))
    (found,) = fitted_for_others(_release(**{field: declared}), artefact)
    assert found == Difference(StageName.SMALL, f"{field}: declared {declared}, fitted on {fitted}", known=known)


def test_another_score_space_differs_even_where_only_a_name_is_known() -> None:
    """Probabilities are no logits, whatever the model was."""
    artefact = scripted_artefact(large_space=ScoreSpace.PROBABILITY)
    assert fitted_for_others(_release(), artefact) == [
        Difference(StageName.SMALL, "fitted on small, of which only the name is known", known=False),
        Difference(StageName.LARGE, "score_space: declared logit, fitted on probability"),
        Difference(StageName.LARGE, "fitted on large, of which only the name is known", known=False),
    ]


def test_a_field_that_the_calibration_does_not_know_cannot_be_told() -> None:
    """An older table may have kept less."""
    known = identity_of(**stage_data("small"))
    del known["engine"]
    assert fitted_for_others(_release(), artefact_for(small=known)) == [
        Difference(StageName.SMALL, "engine: the calibration does not know it", known=False)
    ]


def test_what_an_unset_variable_would_say_is_not_compared() -> None:
    """A model named by a variable is compared where it is set; that it is not is told of the variable."""
    assert fitted_for_others(_release(model=f"org/{UNSET}"), artefact_for()) == []


def test_a_serializer_that_does_not_exist_is_an_error() -> None:
    """It is named."""
    with pytest.raises(ConfigError, match="unheard@1"):
        fitted_for_others(_release(serializer="unheard@1"), artefact_for())


_TEI = TeiStage.model_validate(stage_data("small", revision="r1", dtype="float16"))
_VLLM = VllmStage.model_validate(stage_data("large", adapter="vllm", engine="vllm"))
_ONNX = OnnxStage.model_validate(
    {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "dtype": "int8", "weights": {"folder": "f"}}
)
_SAID = Observed("org/small", "r1", "float16", "1.9.3", 512)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (_TEI, _SAID),
        (_TEI, Observed()),
        (_TEI, Observed(version="1.9", max_length=8192)),
        (_TEI, Observed(version="1.9-rc1")),
        (_ONNX, Observed(model="m", max_length=512)),
        (_VLLM, Observed(model="/models/anything", version="0.32.0", max_length=512)),
    ],
)
def test_a_server_that_says_nothing_else_is_as_declared(spec: StageBase, said: Observed) -> None:
    """A longer version of the one declared agrees; so does a longer limit; vLLM's model has a name of its own."""
    assert not_as_declared(spec, said, said) == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Observed(model="org/other"), "model: declared org/small, the server says org/other"),
        (Observed(revision="r2"), "revision: declared r1, the server says r2"),
        (Observed(dtype="float32"), "dtype: declared float16, the server says float32"),
        (Observed(version="1.8.1"), "version: declared 1.9, the server says 1.8.1"),
        (Observed(version="1.90"), "version: declared 1.9, the server says 1.90"),
        (Observed(max_length=256), "max_length: declared 512, the server says 256"),
    ],
)
def test_what_a_server_says_otherwise_is_told(said: Observed, told: str) -> None:
    """Declared and said stand side by side."""
    assert not_as_declared(_TEI, said, said) == [told]


@pytest.mark.parametrize(
    ("first", "now", "told"),
    [
        (
            Observed(version="0.32.0"),
            Observed(version="0.33.0"),
            "version: the server said 0.32.0 at first, now 0.33.0",
        ),
        (Observed(revision="a"), Observed(revision="b"), "revision: the server said a at first, now b"),
        (Observed(model="m"), Observed(model="n"), "model: the server said m at first, now n"),
    ],
)
def test_what_is_not_declared_is_held_against_what_was_said_first(first: Observed, now: Observed, told: str) -> None:
    """A change seen while running counts, and what is no longer said does not."""
    assert not_as_declared(_VLLM, first, now) == [told]
    assert not_as_declared(_VLLM, first, first) == []
    assert not_as_declared(_VLLM, first, Observed()) == []
    assert not_as_declared(_VLLM, Observed(), now) == []


@pytest.mark.parametrize("stage", [StageName.SMALL, StageName.LARGE])
def test_weights_that_were_exchanged_are_told_where_both_are_known(stage: StageName) -> None:
    """All that is declared may be as it was."""
    fitted = artefact_for()
    known = fitted.model_copy(
        update={str(stage): getattr(fitted, stage).model_copy(update={"weights_sha256": "1" * 64})}
    )
    others = Observed(weights_sha256="2" * 64)
    told = "weights: loaded from files of sha256 222222222222…, fitted on sha256 111111111111…"
    assert fitted_on_other_weights(stage, known, others) == [told]
    assert fitted_on_other_weights(stage, known, Observed(weights_sha256="1" * 64)) == []
    assert fitted_on_other_weights(stage, known, Observed()) == []
    assert fitted_on_other_weights(stage, fitted, others) == []


def test_the_first_word_on_each_thing_is_kept() -> None:
    """What was not said before may be said later; what was, stays."""
    first = first_said(None, Observed(model="m"))
    assert first == Observed(model="m")
    assert first_said(first, Observed(model="n", revision="r")) == Observed(model="m", revision="r")
