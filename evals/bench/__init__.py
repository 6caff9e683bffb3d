"""Benchmarks of the sidecar's own cost."""
