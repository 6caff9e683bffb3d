"""Speak like the server that a client expects."""
