"""Hold tenants to what the stable release says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cascade.guard.admission import Admission
from cascade.guard.deadline import Clock
from cascade.guard.quota import Quota
from cascade.policy.tenant_limits import TenantLimits
from cascade.server.gate import quotas_of
from cascade.telemetry.admission_metrics import AdmissionMetrics

__all__ = ["TenantQuotas"]

_RATE: Final = {"requests_per_second", "burst"}


class TenantQuotas:
    """Keep the quotas of a process. A quota is in front of every release: it is the stable one's."""

    def __init__(self, admission: Admission, metrics: AdmissionMetrics, clock: Clock) -> None:
        self._admission = admission
        self._metrics = metrics
        self._clock = clock
        self._limits: Mapping[str, TenantLimits] = {}
        self._quotas: dict[str, Quota] = {}

    def follow(self, tenants: Mapping[str, TenantLimits]) -> None:
        """Hold tenants to these limits from now on.

        What a tenant has used of its rate, and its requests under way, stay counted: another release is no fresh start.
        """
        quotas = quotas_of(tenants, self._clock)
        for name, new in quotas.items():
            before = self._quotas.get(name)
            if before is None:
                continue
            if tenants[name].model_dump(include=_RATE) != self._limits[name].model_dump(include=_RATE):
                before.bucket = new.bucket
            before.weight, before.concurrent = new.weight, new.concurrent
            quotas[name] = before
        self._limits, self._quotas = tenants, quotas
        self._admission.hold_to(quotas)
        self._metrics.name_tenants(tenants)
