"""Tests of the sidecar as a whole."""
