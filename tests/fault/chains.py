"""Everything that an error shows of itself."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

__all__ = ["chain_of", "shown_by"]

_TESTS: Final = Path(__file__).resolve().parents[1]


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and all that hang on it: causes, contexts (suppressed ones too), members of groups."""
    found: list[BaseException] = []
    ahead: list[BaseException | None] = [error]
    while ahead:
        following = ahead.pop()
        if following is None or following in found:
            continue
        found.append(following)
        ahead += [following.__cause__, following.__context__]
        if isinstance(following, BaseExceptionGroup):
            ahead += following.exceptions
    return found


def shown_by(error: BaseException) -> str:
    """Return what a careless handler could print of an error: texts, attributes, tracebacks, and locals of frames.

    The tests' own frames do not count: they hold what they send.
    """
    shown: list[str] = []
    for each in chain_of(error):
        shown += [str(each), repr(each), repr(each.args), repr(getattr(each, "__dict__", {}))]
        shown += getattr(each, "__notes__", [])
        told = traceback.TracebackException.from_exception(each, capture_locals=True)
        told.stack[:] = [frame for frame in told.stack if not Path(frame.filename).is_relative_to(_TESTS)]
        shown += told.format(chain=False)
    return "\n".join(shown)
