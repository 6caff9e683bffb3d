"""Check what a person or a program wrote, and name each key that breaks a rule, never its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cascade.calibration.broken_rules import broken_rule
from cascade.errors import ConfigError

__all__ = ["Written", "checked"]


class Written(BaseModel):
    """Be strict: unknown keys, infinities and numbers in quotes are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], data: Mapping[str, Any], what: str) -> Model:
    """Return the data as the model. Raises ConfigError that begins with ``what``."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        told = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {broken_rule(fault)}" if fault["loc"] else broken_rule(fault)
            for fault in faults
        )
        raise ConfigError(f"{what}: {told}") from None
