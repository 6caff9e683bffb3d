"""Other forms of a model's weights."""
