"""Decisions and the release model."""
