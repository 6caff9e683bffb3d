"""The examples of docs/frameworks.md, each run in the framework that it is about."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from .asking import run
from .conftest import Sidecars

pytestmark = pytest.mark.engines

_ROOT: Final = Path(__file__).resolve().parents[2]
_FRAMEWORKS: Final = ("langchain", "llamaindex", "haystack")
_EXAMPLES: Final = re.findall(
    r"```python\n(.*?)```", (_ROOT / "docs/frameworks.md").read_text(encoding="utf-8"), flags=re.DOTALL
)
_BOATS: Final = ("Bread is baked.", "A hull displaces water.", "Boats float because they displace water.")


def test_each_framework_has_an_example() -> None:
    """The page has one for each, which names it."""
    assert len(_EXAMPLES) == len(_FRAMEWORKS)
    assert all(f"cascade.clients.{framework}" in code for framework, code in zip(_FRAMEWORKS, _EXAMPLES, strict=True))


@pytest.mark.parametrize("code", _EXAMPLES, ids=_FRAMEWORKS[: len(_EXAMPLES)])
def test_an_example_runs_as_it_is_written(code: str, sidecars: Mapping[str, Sidecars]) -> None:
    """But for the address, the example is run as it stands, and prints the sidecar's best two."""
    sidecar = sidecars["vllm"].planned
    body = {"query": "why do boats float", "candidates": [{"text": text} for text in _BOATS]}
    reply = httpx.post(f"{sidecar}/v1/cascade/rerank", json=body, trust_env=False, timeout=30)
    expected = reply.raise_for_status().json()["results"][:2]
    address = "http://127.0.0.1:8787"
    assert address in code
    printed = run(["-c", code.replace(address, sidecar)], variables={"PYTHONPATH": str(_ROOT)}).decode().splitlines()
    assert len(printed) == len(expected)
    for line, item in zip(printed, expected, strict=True):
        score, stage, text = line.split(" ", 2)
        assert math.isclose(float(score), item["score"], abs_tol=0.001)
        assert (stage, text) == (item["stage"], _BOATS[item["index"]])
