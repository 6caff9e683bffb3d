"""Tests of cascade.replay.html."""
