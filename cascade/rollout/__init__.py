"""Load releases."""
