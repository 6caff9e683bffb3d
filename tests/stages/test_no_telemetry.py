"""A library that would tell its maker of its use is asked not to, before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_TOLD = "import os, cascade.stages.onnx_model; print(os.environ['ORT_DISABLE_TELEMETRY'])"


@pytest.mark.parametrize(("set_before", "is_then"), [(None, "1"), ("0", "0")])
def test_onnxruntime_is_asked_to_send_nothing(set_before: str | None, is_then: str) -> None:
    """Unless who runs the process has decided otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    if set_before is not None:
        environment["ORT_DISABLE_TELEMETRY"] = set_before
    done = subprocess.run([sys.executable, "-c", _TOLD], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == is_then
