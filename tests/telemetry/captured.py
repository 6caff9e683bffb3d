"""Logging as it is configured when serving, into memory, undone afterwards."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from cascade.telemetry.logs import configure_logging

__all__ = ["captured_log"]

_LIBRARIES = ("httpx", "httpcore", "aiohttp", "asyncio", "uvicorn", "uvicorn.error", "uvicorn.access")


@contextmanager
def captured_log(level: str = "debug") -> Iterator[io.BytesIO]:
    """Configure logging at ``level`` and give the stream that it writes to."""
    loggers = [logging.getLogger(), *map(logging.getLogger, _LIBRARIES)]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    stream = io.BytesIO()
    configure_logging(level, stream)
    try:
        yield stream
    finally:
        structlog.reset_defaults()
        for logger, handlers, number, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(number)
