"""Libraries that score pairs on the CPU, in Python environments of their own, beside the sidecar's engine."""
