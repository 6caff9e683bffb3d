"""Tests of the score cache."""
