"""Make other forms of a model's weights: full precision, static int8, a fused graph (extra ``weights``)."""
