"""Whether the stages of a release are what scored the columns of a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from cascade.policy.release import TeiStage, parse_release
from cascade.rollout.load import UNSET
from cascade.rollout.scored_by import not_scored_by
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from tests.scenario import release_data

from .arrange import stage_data

_COLUMNS = {"small": "ce_small", "large": "ce_large"}


def _told(stage: dict[str, Any], scored: Any) -> list[str]:
    """Return what is said of a small stage, where ``scored`` is what the table tells of its column."""
    stages = {"small": stage_data("small") | stage}
    release = parse_release(release_data(stages=stages, escalation="none"))
    return not_scored_by(release, {} if scored is None else {"scorers": {"ce_small": scored}}, _COLUMNS)


def _fingerprint(**fields: Any) -> dict[str, Any]:
    spec = TeiStage.model_validate(stage_data("small"))
    return {"fingerprint": asdict(fingerprint_of(spec, serializer(spec.serializer))) | fields}


def test_the_same_fingerprint_is_the_same_scorer() -> None:
    """What nobody said, and what a variable says that is not set, is not held against it."""
    assert _told({}, _fingerprint()) == []
    assert _told({}, _fingerprint(revision="abc")) == []
    assert _told({"revision": "abc"}, _fingerprint()) == []
    assert _told({"model": UNSET}, _fingerprint()) == []


@pytest.mark.parametrize(
    ("stage", "scored", "told"),
    [
        ({"model": "org/other"}, _fingerprint(), "not what scored column ce_small: model org/other, the column's org/small"),
        ({"revision": "abc"}, _fingerprint(revision="abd"), "revision abc, the column's abd"),
        ({}, _fingerprint(score_space="sigmoid"), "score_space logit, the column's sigmoid"),
        ({}, None, "does not tell what scored column ce_small: the small stage may be another"),
        ({}, {"fingerprint": None}, "does not tell what scored column ce_small"),
        ({}, "kingfisher", "does not tell what scored column ce_small"),
        ({"serializer": "none@1"}, _fingerprint(), "small stage: "),
    ],
)  # fmt: skip
def test_another_or_an_unknown_scorer_is_told(stage: dict[str, Any], scored: Any, told: str) -> None:
    """With what is not the same; a large stage that the release does not have is left out."""
    (sentence,) = _told(stage, scored)
    assert told in sentence
