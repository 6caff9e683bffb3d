"""Tests of cascade.replay.charts."""
