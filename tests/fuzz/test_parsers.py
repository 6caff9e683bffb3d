"""Every parser of what somebody else made, against bad input: README.md lists them."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.telemetry.logs import configure_logging
from tests.fuzz.caller_parsers import CALLER_PARSERS
from tests.fuzz.data_parsers import DATA_PARSERS
from tests.fuzz.holding import Parser, holds
from tests.fuzz.mutation import bad_bytes, bad_json
from tests.fuzz.release_parsers import RELEASE_PARSERS
from tests.fuzz.server_parsers import SERVER_PARSERS
from tests.logs import logging_given_back

_ALL = (*CALLER_PARSERS, *SERVER_PARSERS, *RELEASE_PARSERS, *DATA_PARSERS)
_FUZZED = settings(
    max_examples=max(20, settings().max_examples // 5),
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""A fifth of what other properties have: there are many parsers. The profile ``long`` has thousands."""
_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


@pytest.fixture(autouse=True, scope="module")
def _log_of_its_own() -> Iterator[None]:
    with logging_given_back():
        configure_logging("error", io.BytesIO())
        yield


@pytest.mark.parametrize("parser", _ALL, ids=str)
def test_good_input_is_read(parser: Parser) -> None:
    """What is then changed was good before: else the parser's first rule alone would be tried."""
    read = 0
    for example in parser.examples:
        with contextlib.suppress(*parser.raises):
            parser.parse(example)
            read += 1
    assert read


@pytest.mark.parametrize("parser", _ALL, ids=str)
@_FUZZED
@given(data=st.data())
def test_bad_bytes_raise_what_is_declared(parser: Parser, data: st.DataObject) -> None:
    """Nothing else, with nothing of the content in it, in bounded time and memory."""
    holds(parser, data.draw(bad_bytes(parser.examples)), is_whole=False)


@pytest.mark.parametrize("parser", [each for each in _ALL if each.form == "json"], ids=str)
@_FUZZED
@given(data=st.data())
def test_bad_nodes_raise_what_is_declared(parser: Parser, data: st.DataObject) -> None:
    """As of bytes: numbers without end, NaN, nesting, keys twice, halves of surrogates, and values of other kinds."""
    holds(parser, data.draw(bad_json(parser.examples)), is_whole=True)


def test_the_list_of_parsers_is_the_one_that_is_tried() -> None:
    """README.md has a row for each, in order."""
    rows = _ROW.findall((Path(__file__).parent / "README.md").read_text(encoding="utf-8"))[1:]
    assert rows == [parser.name for parser in _ALL]
