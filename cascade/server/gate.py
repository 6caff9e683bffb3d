"""What stands before the pipeline, from settings and the release: who is let in, and how many at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cascade.guard.admission import Admission, Settled
from cascade.guard.deadline import Clock
from cascade.guard.quota import Quota, TokenBucket
from cascade.guard.seat import Bounds
from cascade.policy.tenant_limits import TenantLimits
from cascade.server.access import Access
from cascade.server.settings import Settings
from cascade.telemetry.admission_metrics import KeyMetrics

__all__ = ["check_keys", "is_loopback", "open_access", "open_admission", "quotas_of"]

_LONG_SHARE: Final = 4


def open_admission(
    settings: Settings, tenants: Mapping[str, TenantLimits], clock: Clock, settled: Settled
) -> Admission:
    """Return the admission of a process."""
    most = settings.max_in_flight
    most_long = settings.max_long_in_flight or max(1, most // _LONG_SHARE)
    bounds = Bounds(most, settings.max_queued, most_long, settings.long_request_bytes)
    return Admission(bounds, clock, quotas=quotas_of(tenants, clock), settled=settled, salt=secrets.token_bytes(16))


def quotas_of(tenants: Mapping[str, TenantLimits], clock: Clock) -> dict[str, Quota]:
    """Return the quotas that a release states."""
    return {
        name: Quota(weight=limits.weight, bucket=_bucket(limits, clock), concurrent=limits.concurrent)
        for name, limits in tenants.items()
    }


def open_access(path: Path | None, listener: str, setting: str, metrics: KeyMetrics) -> Access | None:
    """Return who is let in at a listener, None where all are. Raises ConfigError."""
    if path is None:
        return None
    return Access(
        path,
        setting,
        now=time.time,
        denied=lambda why: metrics.denied[listener, why].inc(),
        reloaded=lambda good: metrics.read[listener, "ok" if good else "failed"].inc(),
    )


def check_keys(settings: Settings) -> None:
    """Read the files of keys that settings name. Raises ConfigError."""
    for file, setting in ((settings.keys_file, "keys_file"), (settings.admin_keys_file, "admin_keys_file")):
        if file is not None:
            Access(file, setting, now=time.time)


def is_loopback(host: str) -> bool:
    """Tell whether only this host can reach an address. A name other than localhost may be anything."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bucket(limits: TenantLimits, clock: Clock) -> TokenBucket | None:
    rate = limits.requests_per_second
    return None if rate is None else TokenBucket(rate, limits.burst or max(1, round(rate)), clock)
