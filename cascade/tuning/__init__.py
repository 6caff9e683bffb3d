"""Choose, on this machine and for the user's own lengths, how a stage inside the sidecar batches."""
