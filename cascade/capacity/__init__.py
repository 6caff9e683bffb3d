"""Plan replicas from a workload: how many of each stage carry it, with headroom."""
