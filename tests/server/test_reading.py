"""Reading the release that settings name: a path, an address or none, signed or not."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.server.reading import read_bundle, read_release
from cascade.server.settings import Settings
from tests.rollout.bundles import KEY, OTHER_KEY, key_file, packed


@contextmanager
def _serving(data: bytes) -> Iterator[str]:
    """Serve a tar to who shows the token; give its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers["authorization"] == "Bearer kingfisher" else 401)
            self.send_header("content-type", "application/x-tar")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/release.tar"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_release_at_an_address_is_fetched_once(tmp_path: Path) -> None:
    """With its calibration, and nothing of it stays; what the server refuses is told."""
    data, digest = packed(tmp_path)
    token = tmp_path / "token"
    token.write_text("kingfisher\n")
    with _serving(data) as url:
        settings = Settings(release=url, release_auth_file=token)
        assert read_release(settings, {}).digest == digest
        bundle = read_bundle(settings, {})
        assert (bundle.loaded.digest, bundle.fault) == (digest, None)
        assert bundle.calibration is not None
        with pytest.raises(ConfigError, match=f"^release {url}: the answer is 401: release_auth_file names"):
            read_bundle(Settings(release=url), {})
    with pytest.raises(ConfigError, match=f"^release {url}: no answer: "):
        read_release(settings, {})


async def test_an_address_is_read_while_a_loop_runs(tmp_path: Path) -> None:
    """Commands that are asynchronous read their release too."""
    data, digest = packed(tmp_path)
    token = tmp_path / "token"
    token.write_text("kingfisher")
    with _serving(data) as url:
        assert read_release(Settings(release=url, release_auth_file=token), {}).digest == digest


def test_with_release_keys_only_what_is_signed_is_read(tmp_path: Path) -> None:
    """From a path as from an address."""
    data, digest = packed(tmp_path, KEY)
    path = tmp_path / "bundle.tar"
    path.write_bytes(data)
    keys = key_file(tmp_path, KEY)
    bundle = read_bundle(Settings(release=path, release_keys_file=keys), {})
    assert (bundle.loaded.digest, bundle.signed_by) == (digest, "56475aa75463474c")
    key_file(tmp_path, OTHER_KEY)
    with pytest.raises(ConfigError, match="which is none of the release keys"):
        read_bundle(Settings(release=path, release_keys_file=keys), {})
    keys.write_bytes(b"")
    with pytest.raises(ConfigError, match="no public key in PEM in it"):
        read_bundle(Settings(release=path, release_keys_file=keys), {})
