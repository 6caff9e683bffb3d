"""How sides are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.parity.sides import EndpointSide, StageSide, TableSide, endpoint_release, parse_side
from cascade.policy.release import TeiStage, VllmStage
from cascade.types import ScoreSpace, StageName


def test_a_table_a_stage_and_an_endpoint_are_told_apart() -> None:
    """By what stands before the last #; an address keeps its own colons and path."""
    assert parse_side("REF", "a#b/t.parquet#large") == TableSide(Path("a#b/t.parquet"), "large")
    assert parse_side("REF", "default#small") == StageSide(Path("default"), StageName.SMALL)
    assert parse_side("REF", "mine.tar#large") == StageSide(Path("mine.tar"), StageName.LARGE)
    assert parse_side("REF", "tei+http://h:3000/x") == EndpointSide("tei", "http://h:3000/x", {})


def test_keys_of_a_stage_stand_behind_the_address() -> None:
    """They become the stage of a release, numbers as numbers, with a nested key behind a dot."""
    side = parse_side(
        "REF", "vllm+https://h:8000#model=BAAI/x,max_length=256,score_space=probability,auth.env=LARGE_KEY"
    )
    assert isinstance(side, EndpointSide)
    spec = endpoint_release("REF", side).stages.large
    assert isinstance(spec, VllmStage)
    assert (spec.url, spec.model, spec.max_length) == ("https://h:8000", "BAAI/x", 256)
    assert spec.score_space is ScoreSpace.PROBABILITY
    assert spec.auth is not None
    assert spec.auth.env == "LARGE_KEY"


def test_tei_needs_no_name_of_the_model() -> None:
    """Its requests do not carry one."""
    side = parse_side("REF", "tei+http://h:3000")
    assert isinstance(side, EndpointSide)
    spec = endpoint_release("REF", side).stages.large
    assert isinstance(spec, TeiStage)
    assert spec.model == "unnamed"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("t.parquet", "CAND: write TABLE.parquet#COLUMN"),
        ("t.parquet#", "CAND: write TABLE.parquet#COLUMN"),
        ("#large", "CAND: write TABLE.parquet#COLUMN"),
        ("r.yaml#tiny", "CAND: a release has the stages small and large, not tiny"),
        ("tei+http://h:1#model", "CAND: behind # of an endpoint write key=value"),
        ("tei+http://h:1#auth.=x", "CAND: behind # of an endpoint write key=value"),
        ("tei+http://h:1#auth=x,auth.env=Y", "CAND: auth is given as a whole and by its keys"),
    ],
)
def test_what_cannot_be_read_is_told_with_the_forms(written: str, message: str) -> None:
    """The error names the side."""
    with pytest.raises(ConfigError, match=message.replace("+", r"\+")):
        parse_side("CAND", written)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("vllm+http://h:1", r"REF: stages\.large\.vllm\.model: Field required"),
        ("tei+http://h:1?x=1", r"REF: stages\.large\.tei\.url: .*no credentials, query or fragment"),
        ("tei+http://h:1#max_len=3", r"REF: stages\.large\.tei\.max_len: Extra inputs are not permitted"),
        ("bm+http://h:1", r"REF: stages\.large: 'adapter' must be one of 'tei'"),
    ],
)
def test_an_endpoint_is_checked_like_a_stage(written: str, message: str) -> None:
    """The error names the key."""
    side = parse_side("REF", written)
    assert isinstance(side, EndpointSide)
    with pytest.raises(ConfigError, match=message):
        endpoint_release("REF", side)
