"""Turn decisions into log lines and metrics."""
