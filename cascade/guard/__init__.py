"""Keep time and load within bounds."""
