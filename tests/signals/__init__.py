"""Signals of a query."""
