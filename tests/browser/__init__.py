"""The page of a report in a real browser."""
