"""Rerank clients that people use, in a Python environment of their own, against the sidecar."""
