"""Loading releases."""
