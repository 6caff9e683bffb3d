"""Calibrations: what they estimate, and what holds of it whatever the scores."""
