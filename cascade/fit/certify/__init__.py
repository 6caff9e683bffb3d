"""Certifying: thresholds of which it is shown, on queries that nothing else saw, what they lose at most."""
