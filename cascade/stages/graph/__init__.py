"""A model's graph, read and rewritten with the package onnx, which nothing else that serves imports."""
