"""Say which rules a file or a request's data breaks, without repeating what stands there."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

__all__ = ["broken_rule", "broken_rules"]

_MOST: Final = 10
_LONGEST_PLACE: Final = 200


def broken_rules(error: ValidationError, whole: str = "file", most: int = _MOST) -> str:
    """Tell which keys break which rules, the first of them, and no value. ``whole`` is what is at fault where no key is.

    A key may be anything that somebody wrote: it is cut, and what cannot be printed of it is replaced.
    """
    faults = error.errors(include_url=False, include_input=False)
    told = [f"{_place_of(fault) or whole}: {broken_rule(fault)}" for fault in faults[:most]]
    left = len(faults) - len(told)
    return "; ".join([*told, f"and {left} more"] if left else told)


def broken_rule(fault: ErrorDetails) -> str:
    """Tell the rule that a key breaks, in our words where it is ours. Of pydantic's own texts, only that of an unknown tag quotes the value."""
    if fault["type"] != "union_tag_invalid":
        return fault["msg"].removeprefix("Value error, ").replace("a valid tuple", "a valid list")
    return f"{fault['ctx']['discriminator']} must be one of {fault['ctx']['expected_tags']}"


def _place_of(fault: ErrorDetails) -> str:
    written = ".".join(map(str, fault["loc"]))
    return "".join(sign if sign.isprintable() else "?" for sign in written[:_LONGEST_PLACE])
