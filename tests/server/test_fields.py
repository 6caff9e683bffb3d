"""The names of fields: every one that a dialect takes is known, so that no other dialect drops it silently."""

from __future__ import annotations

from cascade.server.dialects.infinity import InfinityRequest
from cascade.server.dialects.native import NativeRequest
from cascade.server.dialects.tei import TeiRequest
from cascade.server.dialects.vllm import VllmRequest
from cascade.server.dialects.vllm_fields import refuse_unmet
from cascade.server.dialects.vllm_score import SPELLINGS, VllmScoreRequest
from cascade.server.fields import KNOWN_FIELDS, ignored_fields, logged_field


def test_every_field_of_a_dialect_is_known() -> None:
    """A field that one dialect takes is named as ignored by the others, and may be logged."""
    models = (InfinityRequest, NativeRequest, TeiRequest, VllmRequest, VllmScoreRequest)
    taken = {name for model in models for name in model.model_fields} | {name for pair in SPELLINGS for name in pair}
    assert taken <= KNOWN_FIELDS


def test_names_that_nobody_knows_are_told_nowhere() -> None:
    """They may be content."""
    assert ignored_fields({"canary": 1, "top_n": 1}, ()) == ("top_n",)
    assert logged_field("canary.0.text") == "(unnamed)"
    assert logged_field("candidates.0.canary") == "candidates"
    assert logged_field("x-request-timeout-ms") == "x-request-timeout-ms"


def test_what_is_no_object_has_no_fields() -> None:
    """A body of another type is refused elsewhere."""
    assert ignored_fields([1], ()) == ()
    refuse_unmet([1])
