"""Where the real collections are that evaluations read in place."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["shared_data"]


def shared_data() -> Path:
    """Return the folder of real collections: CASCADE_DATA, else ``shared/data`` beside the checkout."""
    named = os.environ.get("CASCADE_DATA")
    return Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
