"""One request from candidates to ranking: the only place that joins decisions and I/O."""

from cascade.pipeline.pipeline import Pipeline

__all__ = ["Pipeline"]
