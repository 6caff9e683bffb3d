"""What a source says should be served."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["Desired", "utc_now"]


@dataclass(frozen=True, slots=True)
class Desired:
    """The release that a source names, by its digest, and where its bundle lies in the store.

    Times are in UTC, as ISO 8601 has them: ``asked_at`` when the source was first seen to name it, ``downloaded_at``
    when it was whole in the store. ``fault`` says why what the source has now cannot be used; the rest is then the
    last that could, and None where there was none.
    """

    digest: str | None = None
    name: str | None = None
    path_in_store: Path | None = None
    asked_at: str | None = None
    downloaded_at: str | None = None
    fault: str | None = None


def utc_now() -> str:
    """Return the time of day in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
