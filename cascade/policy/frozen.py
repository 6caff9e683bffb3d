"""The base of every part of a release."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Frozen"]


class Frozen(BaseModel):
    """Refuse unknown keys, loose types and changes, and never repeat a value in an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)
