"""Faults of every kind between a sidecar and its servers, for a while: `python -m evals.soak`."""
