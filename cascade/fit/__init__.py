"""Fitting artefacts from score tables. The only room that imports scikit-learn; the serving path never does.

Raises ConfigError where scikit-learn is not installed.
"""

from cascade.errors import lacks_extra

try:
    import sklearn as _  # noqa: F401 - to say at once what is missing
except ImportError:
    raise lacks_extra("fitting needs", "fit") from None
