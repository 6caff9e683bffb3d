"""Fixtures of the listeners' tests."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from cascade.telemetry.logs import configure_logging
from tests.logs import logging_given_back


@pytest.fixture(autouse=True)
def log() -> Iterator[io.BytesIO]:
    """Log into memory: what a test prints is not the log's, and a stream of another test may be closed."""
    with logging_given_back():
        stream = io.BytesIO()
        configure_logging("info", stream)
        yield stream
