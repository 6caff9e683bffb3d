"""Fitting artefacts from score tables. The only room that imports scikit-learn; the serving path never does.

Raises ConfigError where scikit-learn is not installed.
"""

from cascade.errors import ConfigError

try:
    import sklearn as _  # noqa: F401 - to say at once what is missing
except ImportError:
    raise ConfigError("fitting needs cascade-rerank[fit]") from None
