"""Compare two scorers pair by pair, to tell whether the one can stand in for the other."""
