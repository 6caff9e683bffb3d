"""Tests, bounds and sample sizes: what may be believed of numbers of queries. Pure: numpy and the standard library."""
