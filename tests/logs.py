"""Give the log's configuration back after a test that changes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

__all__ = ["logging_given_back"]


@contextmanager
def logging_given_back() -> Iterator[None]:
    """Undo what configuring the log does to the process, and nothing else."""
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not type(handler).__module__.startswith("cascade")]
    root.setLevel(logging.WARNING)
