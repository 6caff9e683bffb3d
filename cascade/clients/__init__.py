"""What puts the sidecar into retrieval frameworks; each module needs the extra of its name, and nothing here imports it."""
