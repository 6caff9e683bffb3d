"""The file of a calibration: canonical, and checked whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest

from cascade.calibration.artefact import (
    FinalOrder,
    IsotonicMap,
    PlattMap,
    artefact_bytes,
    artefact_digest,
    parse_artefact,
)
from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.testing.calibration import scripted_artefact

_SECRET = "7319.25"


def _plain() -> dict[str, Any]:
    """Return an artefact with everything that one may hold, as the file has it."""
    artefact = scripted_artefact(second_round=True).model_copy(
        update={
            "score_maps": {
                "small": PlattMap(slope=1.0, intercept=0.0),
                "large": IsotonicMap(kind="isotonic", scores=(0.0, 1.0), probabilities=(0.2, 0.8)),
            },
            "final_order": FinalOrder(large=1.0, features={"rrf": 2.0}, gain=0.02, low=0.01, high=0.03),
        }
    )
    plain: dict[str, Any] = json.loads(artefact_bytes(artefact))
    return plain


def test_an_artefact_is_read_as_it_was_written() -> None:
    """Bytes, artefact, bytes again: nothing is lost, and the digest stays."""
    data = orjson.dumps(_plain(), option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    assert artefact_bytes(parse_artefact(data, "a.json")) == data
    assert artefact_digest(data).removeprefix("sha256:").isalnum()
    assert artefact_digest(data) != artefact_digest(data + b" ")


def test_the_bytes_are_canonical() -> None:
    """Keys are sorted, nothing is spaced, and one newline ends the file."""
    data = artefact_bytes(scripted_artefact())
    plain = json.loads(data)
    assert data == json.dumps(plain, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    shuffled = dict(reversed(plain.items()))
    assert artefact_bytes(parse_artefact(json.dumps(shuffled).encode(), "b.json")) == data


def _set(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(plain: dict[str, Any]) -> None:
        at: Any = plain
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_set("format", value=_SECRET), "format: Input should be 'cascade-calibration/1'"),
        (_set("k", value=7), r"file: k must be one of \[1, 3, 5, 10\]"),
        (_set("cutoffs", value=[1, 2]), r"cutoffs must be \[1, 3, 5, 10\]"),
        (_set("channels", value=["bm25", "bm25"]), "channels must differ, and none may be called small"),
        (_set("channels", value=["small"]), "channels must differ, and none may be called small"),
        (_set("trained_on", "queries", value=_SECRET + "x"), "trained_on.queries: Input should be a valid integer"),
        (_set("trained_on", "data_sha256", value=_SECRET), "trained_on.data_sha256: String should match pattern"),
        (
            _set("small", "space", value=_SECRET),
            "small.space: Input should be 'logit', 'probability', 'cosine' or 'rank'",
        ),
        (_set("second_round", "scale", value=0), "second_round.scale: Input should be greater than 0"),
        (_set("second_round", "noise", value=[]), "second_round.noise: Tuple should have at least 1 item"),
        (_set("score_maps", "small", "kind", value=_SECRET), "score_maps.small: 'kind' must be one of 'platt'"),
        (_set("score_maps", "small", "slope", value=-1.0), "score_maps.small.platt.slope: Input should be greater"),
        (_set("score_maps", "large", "scores", value=[1.0, 0.0]), "must be as many and rise"),
        (_set("score_maps", "large", "probabilities", value=[0.5]), "must be as many and rise"),
        (_set("score_maps", "large", "probabilities", value=[0.5, 2]), "probabilities.1: Input should be less than"),
        (_set("surprise", value=_SECRET), "surprise: Extra inputs are not permitted"),
    ],
)
def test_a_fault_names_its_key_and_never_a_value(change: Callable[[dict[str, Any]], None], told: str) -> None:
    """The file, the place in it and the rule that is broken."""
    plain = _plain()
    change(plain)
    with pytest.raises(ConfigError, match=told) as raised:
        parse_artefact(json.dumps(plain).encode(), "a.json")
    assert str(raised.value).startswith("calibration a.json: ")
    assert _SECRET not in str(raised.value)


def test_keys_that_anybody_wrote_are_told_in_bounds() -> None:
    """An error goes into logs and onto terminals: keys are cut, signs of control are none, and not all of many are told."""
    plain = _plain() | {f"\x1b[31m{number}\n{'x' * 10_000}": 0 for number in range(100)}
    with pytest.raises(ConfigError) as raised:
        parse_artefact(json.dumps(plain).encode(), "a.json")
    told = str(raised.value)
    assert told.isprintable()
    assert len(told) < 3000
    assert told.endswith("; and 90 more")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": NaN}', b"[" * 10_000])
def test_what_is_not_json_of_an_artefact_is_refused(data: bytes) -> None:
    """One sentence, whatever the bytes."""
    with pytest.raises(ConfigError, match=r"calibration a\.json: "):
        parse_artefact(data, "a.json")


def test_a_number_that_is_none_is_refused() -> None:
    """No infinity or NaN gets into an estimate."""
    data = artefact_bytes(scripted_artefact()).replace(b'"intercept":[-5.0', b'"intercept":[NaN')
    assert b"NaN" in data
    with pytest.raises(ConfigError, match=r"entry\.intercept\.0: "):
        parse_artefact(data, "a.json")


@pytest.mark.parametrize(
    "change",
    [
        _set("entry", "intercept", value=[0.0]),
        _set("entry", "missing", value=[[0.0] * 5]),
        _set("entry", "pair", "features", value=["small.z", "dense.z"]),
        _set("entry", "pair", "features", value=["small.z"]),
        _set("entry", "pair", "knots", value=[[0.0, 1.0], [1.0, 0.0]]),
        _set("entry", "pair", "knots", value=[[0.0], [0.0]]),
        _set("entry", "pair", "knots", value=[[], []]),
        _set("entry", "pair", "knots", value=[[0.0, 1.0], [0.0, 1.0, 2.0]]),
        _set("entry", "pair", "coefficients", value=[]),
        _set("entry", "query", "coefficients", value=[[[[0.0] * 4] * 5]]),
        _set("second_round", "covariance", value=[[1.0]]),
        _set("second_round", "covariance", value=[[1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]]),
        _set("second_round", "covariance", value=[[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        _set("second_round", "bins", value=[0.0]),
        _set("second_round", "noise", value=[-1.0]),
        _set("second_round", "centre", value=[[0.0]]),
        _set("second_round", "intercept", value=[0.0]),
        _set("second_round", "spread", value=[[0.0] * 9] * 4),
        _set("final_order", "features", value={"dense.z": 1.0}),
    ],
)
def test_tables_that_do_not_fit_together_are_refused_at_once(change: Callable[[dict[str, Any]], None]) -> None:
    """Shapes, names, order and sign are checked when a calibration is made, not while a request waits."""
    plain = _plain()
    change(plain)
    artefact = parse_artefact(json.dumps(plain).encode(), "a.json")
    with pytest.raises(ConfigError, match="calibration sha256:1: its tables do not fit together: "):
        Calibration(artefact, "sha256:1")


def test_unsorted_bins_are_refused() -> None:
    """The inner edges of the noise's bins rise."""
    plain = _plain()
    plain["second_round"] |= {"bins": [1.0, 0.0], "noise": [1.0, 1.0, 1.0]}
    artefact = parse_artefact(json.dumps(plain).encode(), "a.json")
    with pytest.raises(ConfigError, match="spread, noise or bins"):
        Calibration(artefact, "sha256:1")


def test_an_artefact_without_features_is_a_constant() -> None:
    """Where every feature was constant in training only the intercept is left."""
    plain = _plain()
    empty: dict[str, Any] = {"features": [], "knots": [], "coefficients": []}
    plain["entry"] |= {"pair": empty, "query": empty}
    calibration = Calibration(parse_artefact(json.dumps(plain).encode(), "a.json"), "sha256:1")
    p = calibration.entry(np.array([1.0, 2.0, 3.0]), {"bm25": np.array([3.0, 2.0, 1.0])})
    assert np.unique(p, axis=0).shape == (1, 4)
    assert p[0, 0] == pytest.approx(1.0 / (1.0 + np.exp(5.0)))
