"""Score candidates: one contract, an adapter for each kind of server or engine."""
