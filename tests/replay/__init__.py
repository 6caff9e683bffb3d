"""Tests of cascade.replay."""
