"""What is measured: the fake upstream and everything that may stand in front of it, as running processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson
import yaml

from evals.bench.loads import DEPTH, DOCUMENT_COUNTS, TOP_M, calls
from evals.bench.processes import clean_environment, free_port, listens, running

__all__ = ["ECHO_MODULE", "TARGETS", "Endpoint", "Field", "litellm_version", "missing", "release", "score_answers"]

TARGETS: Final = ("direct", "nginx", "pass-through", "deciding", "litellm")
ECHO_MODULE: Final = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")
_PIECE: Final = 3_000
_IN_FLIGHT: Final = 60_000
"""More texts than the most that any load has under way: what is measured is not the wait for a permit."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a target takes requests, the process that serves them, and its admin listener where it has one."""

    url: str
    process: int
    admin: str | None = None


class Field:
    """Run the fake and start targets in front of it; everything ends with the block."""

    def __init__(self, folder: Path, *, service_ms: float, litellm: Path | None) -> None:
        self._folder = folder
        self._service_ms = service_ms
        self._litellm = litellm
        self._stack = ExitStack()
        self._started: dict[tuple[str, tuple[int, ...]], Endpoint] = {}
        self._fake_port = 0

    def __enter__(self) -> Self:
        self._fake_port = free_port()
        fake = _fake_config(self._fake_port, self._folder / "fake", self._service_ms)
        self._fake = self._nginx("fake", self._fake_port, fake)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def endpoint(self, target: str, documents: int) -> Endpoint:
        """Return the endpoint of a target for requests of so many documents, started where it was not yet."""
        fixed = target in {"nginx", "litellm"}
        key = (target, () if fixed else calls(target, documents))
        if key not in self._started:
            self._started[key] = self._start(target, documents)
        found = self._started[key]
        path = f"/vllm/{documents}/v1/score" if target == "nginx" else ""
        return Endpoint(found.url + path, found.process, found.admin)

    def sidecars(self) -> Iterable[tuple[str, Endpoint]]:
        """Return the sidecars that run, by target."""
        return [(key[0], endpoint) for key, endpoint in self._started.items() if endpoint.admin is not None]

    def _start(self, target: str, documents: int) -> Endpoint:
        base = f"http://127.0.0.1:{self._fake_port}"
        if target == "direct":
            return Endpoint(f"{base}/vllm/{documents}/v1/score", self._fake)
        if target == "nginx":
            port = free_port()
            config = _proxy_config(port, self._fake_port, self._folder / "proxy")
            return Endpoint(f"http://127.0.0.1:{port}", self._nginx("proxy", port, config))
        if target == "litellm":
            return self._start_litellm(base)
        return self._start_sidecar(target, documents, base)

    def _nginx(self, name: str, port: int, config: str) -> int:
        folder = self._folder / name
        folder.mkdir()
        (folder / "nginx.conf").write_text(config, encoding="utf-8")
        command = ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        return self._run(name, command, ready=lambda log: listens(port), seconds=10)

    def _start_sidecar(self, target: str, documents: int, base: str) -> Endpoint:
        name = f"{target}-{documents}"
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(release(target, documents, base)), encoding="utf-8")
        command = [sys.executable, "-m", "cascade.cli", "serve", "--port", "0", "--admin-port", "0"]
        command += ["--release", str(file)]
        process = self._run(
            name,
            command,
            ready=lambda log: _serving(log) is not None,
            seconds=60,
            environment=clean_environment(CASCADE__DRAIN_SECONDS="0"),
        )
        told = _serving(self._folder / f"{name}.log") or {}
        return Endpoint(told["public"] + "/v1/rerank", process, told["admin"])

    def _start_litellm(self, base: str) -> Endpoint:
        if self._litellm is None:
            raise RuntimeError("litellm needs an environment of its own")
        port = free_port()
        file = self._folder / "litellm.yaml"
        file.write_text(yaml.safe_dump(_litellm_config(base)), encoding="utf-8")
        environment = clean_environment(
            LITELLM_LOCAL_MODEL_COST_MAP="True",  # else it asks the network for a price table
            LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY="true",  # loopback only, and cheaper for it
            LITELLM_LOG="ERROR",
        )
        environment.pop("PYTHONPATH", None)
        command = [str(self._litellm / "bin" / "litellm"), "--config", str(file)]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        process = self._run("litellm", command, ready=lambda log: listens(port), seconds=180, environment=environment)
        return Endpoint(f"http://127.0.0.1:{port}/rerank", process)

    def _run(
        self,
        name: str,
        command: list[str],
        *,
        ready: Callable[[Path], bool],
        seconds: float,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        log = self._folder / f"{name}.log"
        block = running(command, log, ready=ready, seconds=seconds, environment=environment or clean_environment())
        return self._stack.enter_context(block)


def missing(targets: Iterable[str], *, service_ms: float, litellm: Path | None) -> dict[str, str]:
    """Return why a target cannot run here and what would help, by target; under ``*``, what nothing runs without."""
    lacks: dict[str, str] = {}
    if shutil.which("nginx") is None:
        lacks["*"] = "the fake upstream is nginx: apt-get install nginx-light"
    elif shutil.which("h2load") is None:
        lacks["*"] = "the load generator is h2load: apt-get install nghttp2-client"
    elif service_ms and not ECHO_MODULE.exists():
        lacks["*"] = "a service time needs nginx's echo module: apt-get install libnginx-mod-http-echo"
    if "litellm" in targets and (litellm is None or not (litellm / "bin" / "litellm").exists()):
        lacks["litellm"] = "name its environment with --litellm DIR, or make one with --install-litellm DIR"
    return lacks


def litellm_version(environment: Path) -> str:
    """Return the version of LiteLLM in an environment."""
    command = [str(environment / "bin" / "python"), "-c", "import importlib.metadata as m; print(m.version('litellm'))"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def score_answers(documents: int) -> dict[str, bytes]:
    """Return what the fake answers for so many documents, by path: vLLM's scores, vLLM's ranking and TEI's."""
    scores = [round(4.0 - 8.0 * ((place * 7) % documents) / documents, 6) for place in range(documents)]
    ranked = sorted(range(documents), key=lambda index: -scores[index])
    usage = {"prompt_tokens": 160 * documents, "total_tokens": 160 * documents}
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
    results = [{"index": index, "relevance_score": scores[index]} for index in ranked]
    plain = [{"index": index, "score": scores[index]} for index in ranked]
    return {
        f"/vllm/{documents}/v1/score": orjson.dumps(
            {"id": "score-1", "object": "list", "created": 0, "model": "fake", "data": data, "usage": usage}
        ),
        f"/vllm/{documents}/rerank": orjson.dumps(
            {"id": "rerank-1", "model": "fake", "usage": usage, "results": results}
        ),
        f"/tei/{documents}/rerank": orjson.dumps(plain),
    }


def release(target: str, documents: int, base: str) -> dict[str, Any]:
    """Return the release of ``pass-through`` or ``deciding``, with the fake of the right counts behind its stages.

    Every round is one call, as every other target makes it: a split would be measured as overhead.
    """
    common = {
        "engine": "fake",
        "max_length": 8192,
        "chunk_texts": 200,
        "chunk_bytes": 8_000_000,
        "chunk_tokens": 8_000_000,
        "max_in_flight_texts": _IN_FLIGHT,
    }
    counts = calls(target, documents)
    large = common | {"adapter": "vllm", "model": "fake", "url": f"{base}/vllm/{counts[-1]}"}
    small = common | {"adapter": "tei", "model": "fake", "url": f"{base}/tei/{counts[0]}"}
    deciding = target == "deciding"
    return {
        "release": target,
        "stages": {"small": small, "large": large} if deciding else {"large": large},
        "depth": DEPTH if deciding else max(DOCUMENT_COUNTS),
        "escalation": {"kind": "static", "top_m": TOP_M if deciding else max(DOCUMENT_COUNTS)},
        "budgets": {"total_ms": 30_000, "small_ms": 10_000, "large_ms": 10_000, "reserve_ms": 50},
        "limits": {"max_candidates": max(DOCUMENT_COUNTS), "max_documents": 2048},
        "fallback": "original-order",
    }


def _litellm_config(base: str) -> dict[str, Any]:
    models = [
        {
            "model_name": f"documents-{count}",
            "litellm_params": {"model": "hosted_vllm/fake", "api_base": f"{base}/vllm/{count}", "api_key": "none"},
        }
        for count in DOCUMENT_COUNTS
    ]
    return {"model_list": models, "litellm_settings": {"num_retries": 0, "telemetry": False, "request_timeout": 60}}


def _serving(log: Path) -> dict[str, Any] | None:
    for line in log.read_bytes().splitlines():
        if b'"serving"' in line:
            told: dict[str, Any] = orjson.loads(line)
            return told
    return None


def _fake_config(port: int, folder: Path, service_ms: float) -> str:
    """Return the fake's configuration: a listener that reads a body whole, and one behind it that answers.

    An answer given by ``return`` alone would go out while the body still comes in.
    """
    inner = "unix:" + os.fspath(folder / "s")
    answers = {path: answer for count in DOCUMENT_COUNTS for path, answer in score_answers(count).items()}
    locations = "\n".join(
        f"location = {path} {{ {_answering(answer.decode(), service_ms)} }}" for path, answer in answers.items()
    )
    return _config(
        folder,
        f"""
        server {{ listen {inner}; default_type application/json; location / {{ return 404; }} {locations} }}
        upstream behind {{ server {inner}; keepalive 1024; keepalive_requests 100000000; }}
        server {{
            listen 127.0.0.1:{port} backlog=2048;
            location / {{
                proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection "";
                proxy_pass_request_body off; proxy_set_header Content-Length "";
            }}
        }}""",
        module=f"load_module {ECHO_MODULE};" if service_ms else "",
    )


def _answering(answer: str, service_ms: float) -> str:
    """Return the directives that answer, in pieces: a parameter of nginx's configuration holds at most 4 KiB."""
    pieces = [answer[start : start + _PIECE] for start in range(0, len(answer), _PIECE)]
    variables = "".join(f"set $piece{number} '{piece}'; " for number, piece in enumerate(pieces))
    whole = "".join(f"$piece{number}" for number in range(len(pieces)))
    if service_ms:
        return f'{variables}echo_sleep {service_ms / 1000:g}; echo -n "{whole}";'
    return f'{variables}return 200 "{whole}";'


def _proxy_config(port: int, upstream_port: int, folder: Path) -> str:
    return _config(
        folder,
        f"""
        upstream fake {{ server 127.0.0.1:{upstream_port}; keepalive 1024; keepalive_requests 100000000; }}
        server {{
            listen 127.0.0.1:{port} backlog=2048;
            location / {{ proxy_pass http://fake; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        }}""",
    )


def _config(folder: Path, servers: str, module: str = "") -> str:
    """Return an nginx configuration of one process, with bodies kept in memory and nothing logged."""
    temporary = " ".join(
        f"{kind}_temp_path {folder / kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""{module}
    daemon off; master_process off; pid {folder / "pid"}; error_log stderr error; worker_rlimit_nofile 8192;
    events {{ worker_connections 4096; }}
    http {{
        access_log off; keepalive_requests 100000000; client_max_body_size 16m; client_body_buffer_size 8m;
        proxy_buffers 8 32k; proxy_buffer_size 32k; {temporary} {servers}
    }}
    """
