"""What an operator may ask of a rollout, as it is sent."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AskedAbort", "AskedPromotion", "AskedStart"]

_Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
"""One line: it goes into the log and the history, and from there onto terminals."""


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class AskedStart(_Asked):
    """A release by digest or name. ``at_once`` gives it all traffic, ``lenient`` lets warnings of `verify` pass."""

    release: _Line = Field(min_length=1, max_length=200)
    at_once: bool = False
    lenient: bool = False


class AskedPromotion(_Asked):
    """The next step; with ``force`` without evidence too."""

    force: bool = False


class AskedAbort(_Asked):
    """The end of a rollout, and why."""

    reason: _Line = Field(default="", max_length=500)
