"""Fitting artefacts from score tables. The only room that imports scikit-learn; the serving path never does."""
