"""The file of a tuning, and the numbers that a release takes of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cascade.errors import ConfigError
from cascade.policy.release import OnePair, OnnxStage, TokenBudget, policy_digest
from cascade.policy.tuning import filled_from, parse_tuning, tuning_bytes
from tests.tuning.made import tuning_data, tuning_of


def _stage(**batching: Any) -> OnnxStage:
    return OnnxStage.model_validate(
        {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "w"}, "batching": batching}
    )


def _batch(spec: OnnxStage) -> tuple[int, int, float]:
    assert isinstance(spec.batching, TokenBudget)
    return spec.batching.max_total_tokens, spec.batching.max_pairs, spec.batching.max_wait_ms


def test_what_is_written_is_read() -> None:
    """A tuning comes back whole, and its bytes are always the same."""
    tuning = tuning_of()
    data = tuning_bytes(tuning)
    assert parse_tuning(data, "t") == tuning
    assert tuning_bytes(parse_tuning(data, "t")) == data


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"format": "cascade-tuning/2"}, "format: Input should be 'cascade-tuning/1'"),
        ({"stage": "retrieval"}, "stage: Input should be 'small' or 'large'"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"chosen": {}}, "chosen.threads: Field required; chosen.max_in_flight: Field required"),
        ({"weights": {"name": "w", "sha256": {"model.onnx": "short"}}}, "weights.sha256.model.onnx: "),
        ({"max_length": "512"}, "max_length: Input should be a valid integer"),
        ({"chosen": {"batching": {"mode": "short"}}}, "chosen.batching: 'mode' must be one of "),
        ({"steps": [{"variable": "threads"}]}, "steps.0.metric: Field required"),
    ],
)
def test_what_is_no_tuning_is_told_by_its_key(changes: dict[str, Any], told: str) -> None:
    """The file, the key and its rule; never the value."""
    with pytest.raises(ConfigError) as error:
        parse_tuning(orjson.dumps(tuning_data(**changes)), "t.json")
    assert str(error.value).startswith("tuning t.json: ")
    assert told in str(error.value)
    assert "short" not in str(error.value)


def test_bytes_that_are_no_json_are_refused() -> None:
    """A file that was cut short is no tuning."""
    with pytest.raises(ConfigError, match=r"^tuning t: file: Invalid JSON"):
        parse_tuning(b'{"format":', "t")


def test_numbers_that_a_release_does_not_state_are_the_tuned_ones() -> None:
    """What it states stands, also where it states the default."""
    tuning = tuning_of()
    assert _batch(filled_from(tuning, _stage(mode="token-budget"))) == (1024, 16, 2.0)
    assert _batch(filled_from(tuning, _stage(mode="token-budget", max_pairs=32))) == (1024, 32, 2.0)
    stated = _stage(mode="token-budget", max_total_tokens=4096, max_pairs=8, max_wait_ms=0)
    assert filled_from(tuning, stated) is stated


def test_the_mode_is_the_release_s_alone() -> None:
    """It is part of the fingerprint: a tuning of another mode gives no number."""
    one_pair = _stage(mode="one-pair")
    assert filled_from(tuning_of(), one_pair) is one_pair
    chosen = tuning_data()["chosen"] | {"batching": {"mode": "one-pair"}}
    batched = _stage(mode="token-budget")
    assert filled_from(tuning_of(chosen=chosen), batched) is batched
    assert isinstance(one_pair.batching, OnePair)


def test_a_tuning_is_no_part_of_the_policy() -> None:
    """A certificate holds for a release that was tuned since: answers are the same."""
    stage = {"adapter": "onnx", "model": "m", "engine": "e", "weights": {"folder": "w"}}
    plain = {"release": "r", "stages": {"large": stage, "small": None}, "depth": 5}
    tuned = plain | {"stages": {"large": stage | {"tuning": f"sha256:{'a' * 64}"}, "small": None}}
    other = plain | {"stages": {"large": stage | {"max_length": 256}, "small": None}}
    assert policy_digest(plain) == policy_digest(tuned) != policy_digest(other)
