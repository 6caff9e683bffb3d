"""Statistics that may be looked at at any time."""
