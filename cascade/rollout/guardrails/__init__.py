"""What a candidate is held against the stable release by, and what of it is shown. Pure."""

from __future__ import annotations

from cascade.rollout.guardrails.changes import Changes, changes
from cascade.rollout.guardrails.names import GuardrailName, GuardrailVerdict
from cascade.rollout.guardrails.observed import Observed, Pricing, observed_of, pricings
from cascade.rollout.guardrails.settled import Settled
from cascade.rollout.guardrails.time_to_rollback import time_to_rollback
from cascade.rollout.guardrails.told import Told

__all__ = [
    "Changes",
    "GuardrailName",
    "GuardrailVerdict",
    "Observed",
    "Pricing",
    "Settled",
    "Told",
    "changes",
    "observed_of",
    "pricings",
    "time_to_rollback",
]
