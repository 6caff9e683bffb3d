"""Evaluations: what the parts are worth, on data, with figures that anyone can measure again."""
