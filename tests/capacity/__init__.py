"""Tests of cascade.capacity."""
