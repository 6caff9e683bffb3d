"""Evaluating fitted artefacts: entry probabilities, their second round, score maps. Pure numpy."""
