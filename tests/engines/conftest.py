"""One server of each kind for the whole session; a server that cannot start fails its tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers import Server, infinity_server, llamacpp_server, vllm_chat_server, vllm_server
from .sidecar import Sidecar, release_of, sidecar

__all__ = ["KEY"]

KEY = "a key that the server asks for"


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that servers write their output to."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="session")
def vllm(logs: Path) -> Iterator[Server]:
    """Run vLLM."""
    with vllm_server(logs) as server:
        yield server


@pytest.fixture(scope="session")
def vllm_with_key(logs: Path) -> Iterator[Server]:
    """Run a vLLM that asks for a key."""
    with vllm_server(logs, api_key=KEY) as server:
        yield server


@pytest.fixture(scope="session")
def vllm_chat(logs: Path) -> Iterator[Server]:
    """Run vLLM with a model that writes."""
    with vllm_chat_server(logs) as server:
        yield server


@pytest.fixture(scope="session")
def llamacpp(logs: Path) -> Iterator[Server]:
    """Run llama.cpp's server."""
    with llamacpp_server(logs) as server:
        yield server


@pytest.fixture(scope="session")
def infinity(logs: Path) -> Iterator[Server]:
    """Run Infinity."""
    with infinity_server(logs) as server:
        yield server


@pytest.fixture(scope="session")
def serving(logs: Path, llamacpp: Server, vllm: Server) -> Iterator[Sidecar]:
    """Run the sidecar with llama.cpp as its small and vLLM as its large stage."""
    with sidecar(logs, release_of("engines", llamacpp, vllm, adapter="vllm", top_m=20)) as whole:
        yield whole
