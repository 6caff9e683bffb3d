"""Run models on this machine's cores: tokens, batches over requests, and the threads that all embedded stages share."""
