"""Real reranker servers for tests, each in a Python environment of its own."""
