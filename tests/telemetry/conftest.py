"""What tests of traces share: a collector, and no variables of the shell that speak of one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.telemetry.collector import Collector, collecting


@pytest.fixture
def no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the environment says of a collector."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Give a collector that takes everything."""
    with collecting() as found:
        yield found
