"""What one tenant may ask for, and its share of what there is."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cascade.policy.frozen import Frozen

__all__ = ["TenantLimits", "TenantName"]

TenantName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class TenantLimits(Frozen):
    """Bound one tenant, in each process."""

    weight: float = Field(
        default=1.0, ge=0.001, le=1000, description="Its share of what becomes free, against those of others that wait"
    )
    requests_per_second: float | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Requests a second, each query of a body counted; more get 429. 0 accepts none; unset: no bound",
    )
    burst: int | None = Field(
        default=None,
        ge=1,
        description="Requests at once after a pause; unset: those of a second, at least one",
    )
    concurrent: int | None = Field(
        default=None,
        ge=0,
        description="Requests at a time, each query of a body counted, waiting or under way; more get 429. Unset: no bound",
    )
