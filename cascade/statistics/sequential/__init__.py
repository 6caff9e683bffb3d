"""Statistics that may be looked at after every query, and acted upon, without losing their meaning."""

from __future__ import annotations

from cascade.statistics.sequential.confidence_sequence import ConfidenceSequence, confidence_bounds, planned_rho
from cascade.statistics.sequential.msprt import Msprt, msprt_p_values
from cascade.statistics.sequential.non_inferiority import NonInferiority, log_wealth

__all__ = [
    "ConfidenceSequence",
    "Msprt",
    "NonInferiority",
    "confidence_bounds",
    "log_wealth",
    "msprt_p_values",
    "planned_rho",
]
