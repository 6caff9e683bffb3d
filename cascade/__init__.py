"""A sidecar that answers rerank requests through a small and a large reranker, in time and in full."""

__all__ = ["__version__"]

__version__ = "0.1.0"
