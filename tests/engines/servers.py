"""Start real reranker servers on this machine, and end exactly what was started."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from .environments import Engine, environment

__all__ = [
    "EngineStartError",
    "Server",
    "free_port",
    "infinity_server",
    "llamacpp_server",
    "running",
    "vllm_chat_server",
    "vllm_server",
]

_HOST = "127.0.0.1"
_MODELS = Path(__file__).resolve().parents[1] / "fixtures" / "models"
_VLLM_START_S = 240.0
_LLAMACPP_START_S = 60.0
_INFINITY_START_S = 180.0
_POLL_S = 0.1
_TERM_S = 20.0
_LOG_TAIL_LINES = 30

# Variables of the caller that would change what a server does.
_UNINHERITED = ("CASCADE_", "HF_", "INFINITY_", "LLAMA_", "PYTHONPATH", "VLLM_")
# One OpenMP thread and no binding: a server beside tests on few cores would otherwise starve both.
_VLLM_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": _HOST,
    "VLLM_NO_USAGE_STATS": "1",
}
_INFINITY_SETTINGS = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Server:
    """A healthy server. `pid` is also its process group; `version` is the server's own word."""

    base_url: str
    model: str
    pid: int
    version: str


class EngineStartError(RuntimeError):
    """An engine is not installed, or ended or stayed unhealthy while it was started."""


@contextmanager
def vllm_server(
    logs: Path,
    *,
    model: str = "micro-ce",
    api_key: str | None = None,
    port: int | None = None,
    start_s: float = _VLLM_START_S,
) -> Iterator[Server]:
    """Run vLLM on the micro-ce cross-encoder, served as `model`; its limit is 512 tokens a pair.

    Output goes to a file in the existing folder `logs`. With `api_key`, only `/v1` and `/v2`
    routes ask for it. With `port` it can come back where another was. Raises `EngineStartError`
    when it is not healthy within `start_s` seconds.
    """
    port = free_port() if port is None else port
    command = [_program(Engine.VLLM, "python"), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--host", _HOST, "--port", str(port), "--model", str(_MODELS / "micro-ce")]
    command += ["--served-model-name", model, "--runner", "pooling", "--dtype", "float32", "--enforce-eager"]
    if api_key is not None:
        command += ["--api-key", api_key]
    with running(command, _VLLM_SETTINGS, port, logs / f"vllm-{port}.log", start_s) as pid:
        yield Server(f"http://{_HOST}:{port}", model, pid, str(_asked(port, "/version")["version"]))


@contextmanager
def vllm_chat_server(
    logs: Path, *, model: str = "micro-chat", port: int | None = None, start_s: float = _VLLM_START_S
) -> Iterator[Server]:
    """Run vLLM on a tiny language model with random weights, which writes rubbish; a token is a byte, 4096 are its limit.

    It tells how much of a prompt it had in its prefix cache. The other arguments and the error are those of `vllm_server`.
    """
    port = free_port() if port is None else port
    command = [_program(Engine.VLLM, "python"), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--host", _HOST, "--port", str(port), "--model", str(_MODELS / "micro-chat"), "--load-format", "dummy"]
    command += ["--served-model-name", model, "--dtype", "float32", "--enforce-eager", "--max-model-len", "4096"]
    command += ["--enable-prompt-tokens-details", "--max-num-seqs", "8"]
    with running(command, _VLLM_SETTINGS, port, logs / f"vllm-chat-{port}.log", start_s) as pid:
        yield Server(f"http://{_HOST}:{port}", model, pid, str(_asked(port, "/version")["version"]))


@contextmanager
def llamacpp_server(
    logs: Path, *, model: str = "tiny-ce", port: int | None = None, start_s: float = _LLAMACPP_START_S
) -> Iterator[Server]:
    """Run llama.cpp's server on the tiny-ce cross-encoder, served as `model`, with four slots.

    Its scores are not the model's: use it for the protocol. The other arguments and the error are
    those of `vllm_server`.
    """
    port = free_port() if port is None else port
    command = [_program(Engine.LLAMACPP, "llama-server-vulkan"), "--host", _HOST, "--port", str(port)]
    command += ["--model", str(_MODELS / "tiny-ce.gguf"), "--alias", model]
    command += ["--reranking", "--gpu-layers", "0", "--threads", "1", "--parallel", "4"]
    command += ["--ctx-size", "2048", "--batch-size", "2048", "--ubatch-size", "2048"]
    with running(command, {}, port, logs / f"llamacpp-{port}.log", start_s) as pid:
        yield Server(f"http://{_HOST}:{port}", model, pid, str(_asked(port, "/props")["build_info"]))


@contextmanager
def infinity_server(
    logs: Path, *, model: str = "micro-ce", port: int | None = None, start_s: float = _INFINITY_START_S
) -> Iterator[Server]:
    """Run Infinity on the micro-ce cross-encoder, served as `model`; it clips pairs to 512 tokens.

    The arguments and the error are those of `vllm_server`.
    """
    port = free_port() if port is None else port
    command = [_program(Engine.INFINITY, "infinity_emb"), "v2", "--host", _HOST, "--port", str(port)]
    command += ["--model-id", str(_MODELS / "micro-ce"), "--served-model-name", model]
    command += ["--engine", "torch", "--device", "cpu", "--no-model-warmup"]
    with running(command, _INFINITY_SETTINGS, port, logs / f"infinity-{port}.log", start_s) as pid:
        version = str(_asked(port, "/openapi.json")["info"]["version"])
        yield Server(f"http://{_HOST}:{port}", model, pid, version)


def _program(engine: Engine, name: str) -> str:
    """Return the path of a program in the engine's complete environment."""
    target = environment(engine)
    if not target.marker.exists():
        raise EngineStartError(f"{target.folder.name} is not installed: run scripts/engines install {engine}")
    return str(target.bin / name)


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(command: Sequence[str], settings: Mapping[str, str], port: int, log: Path, start_s: float) -> Iterator[int]:
    """Run the command as the leader of a new process group and session; yield its id once healthy."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_UNINHERITED)}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env={**inherited, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_healthy(process.pid, port, log, start_s)
        yield process.pid
    finally:
        _end(process)


def _wait_until_healthy(pid: int, port: int, log: Path, start_s: float) -> None:
    """Return once `/health` answers 200; raise with the log's last lines if it does not in time."""
    give_up = time.monotonic() + start_s
    while not _healthy(port):
        ended = _has_ended(pid)
        if ended or time.monotonic() >= give_up:
            reason = "ended while starting" if ended else f"not healthy after {start_s:g} s"
            last = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            raise EngineStartError("\n".join([f"{reason}; {log} ends with:", *last]))
        time.sleep(_POLL_S)


def _healthy(port: int) -> bool:
    """Return whether the server answers 200 on `/health`; no answer is no."""
    try:
        status, _ = _get(port, "/health")
    except (OSError, HTTPException):
        return False
    return status == 200


def _asked(port: int, path: str) -> dict[str, Any]:
    """Return the JSON object that the server answers on `path`."""
    _, body = _get(port, path)
    told: dict[str, Any] = json.loads(body)
    return told


def _get(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of a GET, sent straight to the server whatever proxy is configured."""
    connection = HTTPConnection(_HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _has_ended(pid: int) -> bool:
    """Return whether the child has ended, without reaping it.

    An unreaped leader keeps its id, so a later signal to its group cannot reach another's.
    """
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process's whole group: ask its members to stop, then kill those that are left."""
    group = process.pid
    os.killpg(group, signal.SIGTERM)
    give_up = time.monotonic() + _TERM_S
    with suppress(ProcessLookupError):  # the group is empty
        while time.monotonic() < give_up:
            process.poll()  # reaps the leader; the members that are left keep the group's id in use
            os.killpg(group, 0)
            time.sleep(_POLL_S)
        os.killpg(group, signal.SIGKILL)
    process.wait()
