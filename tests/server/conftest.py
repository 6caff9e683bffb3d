"""Fixtures of the listeners' tests."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from cascade.telemetry.logs import configure_logging
from tests.logs import logging_given_back


@pytest.fixture(autouse=True)
def _log_of_its_own() -> Iterator[None]:
    """Log into memory: what a test prints is not the log's, and a stream of another test may be closed."""
    with logging_given_back():
        configure_logging("info", io.BytesIO())
        yield
