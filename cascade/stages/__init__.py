"""Score candidates: one contract, an adapter for each kind of server or engine."""

import os

# onnxruntime's wheels tell their maker of their use by default (since 1.29), and say so on stderr in lines that are no
# log of ours. It reads this where it is imported, which happens below this package or after it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
