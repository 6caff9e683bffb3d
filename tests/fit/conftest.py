"""One calibration of a planted table, fitted once for all tests that only read it."""

from __future__ import annotations

import pytest

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest
from cascade.calibration.calibrated import Calibration
from cascade.fit.calibrate import Asked, calibrate
from cascade.replay.table import ScoreTable
from tests.fit.planted import ROLES, planted_table


@pytest.fixture(scope="session")
def planted() -> ScoreTable:
    """Give 110 queries of 24 candidates."""
    return planted_table()


@pytest.fixture(scope="session")
def fitted(planted: ScoreTable) -> CalibrationArtefact:
    """Give the artefact of that table."""
    return calibrate([planted], Asked(ROLES, k=5))


@pytest.fixture(scope="session")
def calibration(fitted: CalibrationArtefact) -> Calibration:
    """Give its calibration."""
    return Calibration(fitted, artefact_digest(artefact_bytes(fitted)))
