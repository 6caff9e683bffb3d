"""Decide, without I/O, clock, randomness or environment."""
