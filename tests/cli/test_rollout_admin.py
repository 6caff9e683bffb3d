"""What an admin listener may answer, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trustme

from cascade.cli.rollout_admin import Admin, AdminTls, NoAnswer
from cascade.errors import CascadeError, ConfigError
from cascade.server.settings import Settings
from cascade.server.tls import open_tls
from tests.certificates import issued
from tests.server.listeners import public_listener

_URL = "http://sidecar.test"


def _admin(answer: Callable[[httpx.Request], httpx.Response]) -> Admin:
    return Admin(_URL, "a-key", httpx.MockTransport(answer))


def _raises(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (_raises(httpx.ReadTimeout("")), NoAnswer, f"{_URL} has not answered in time"),
        (_raises(httpx.RemoteProtocolError("")), NoAnswer, f"{_URL} does not answer: RemoteProtocolError"),
        (lambda _: httpx.Response(500, json={"error": "internal error"}), NoAnswer, f"{_URL}: internal error"),
        (lambda _: httpx.Response(502, text="<html>"), NoAnswer, "status 502"),
        (lambda _: httpx.Response(200, text="<html>"), ConfigError, "is not the admin listener of a sidecar"),
        (lambda _: httpx.Response(200, text="[" * 100_000), ConfigError, "is not the admin listener of a sidecar"),
        (lambda _: httpx.Response(200, json=[1]), ConfigError, "is not the admin listener of a sidecar"),
        (lambda _: httpx.Response(404, json={"error": "Not Found"}), ConfigError, "status 404"),
        (lambda _: httpx.Response(415, json={"error": "content-type: no"}), ConfigError, f"{_URL}: content-type: no"),
    ],
)
def test_what_may_pass_is_no_answer_and_the_rest_is_bad_input(
    answer: Callable[[httpx.Request], httpx.Response], kind: type[CascadeError], said: str
) -> None:
    """The first is asked again by who watches; the address is named, the key never."""
    with pytest.raises(kind) as raised:
        _admin(answer).get("/rollout")
    assert said in str(raised.value)
    assert "a-key" not in str(raised.value)


def test_one_that_has_answered_and_ends_a_connection_gets_no_advice_about_tls() -> None:
    """It is restarted, say."""
    error = httpx.RemoteProtocolError("")

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/gone":
            raise error
        return httpx.Response(200, json={})

    admin = _admin(answer)
    with pytest.raises(NoAnswer, match=r"RemoteProtocolError: it may speak TLS; ask it over https$"):
        admin.get("/gone")
    assert admin.get("/there") == {}
    with pytest.raises(NoAnswer, match=r"RemoteProtocolError$"):
        admin.get("/gone")


def test_the_key_follows_no_redirect() -> None:
    """It goes to the address that was named, and nowhere else."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.host} {request.headers['authorization']}")
        return httpx.Response(307, headers={"location": "http://elsewhere.test/"}, json={"error": "moved"})

    with pytest.raises(ConfigError, match="moved"):
        _admin(answer).post("/rollout/abort", reason="")
    assert asked == ["sidecar.test Bearer a-key"]


def test_an_https_listener_is_trusted_by_the_authorities_that_are_named(tmp_path: Path) -> None:
    """And shown a certificate where it asks for one; the system's authorities alone do not know it."""
    authority, clients = trustme.CA(), trustme.CA()
    ca, shown = tmp_path / "ca.pem", issued(tmp_path / "client", clients, "client.test")
    ca.write_bytes(authority.cert_pem.bytes())
    served = issued(tmp_path / "server", authority)
    (tmp_path / "clients.pem").write_bytes(clients.cert_pem.bytes())
    tls = open_tls(
        Settings(
            tls_certificate_file=served.certificate,
            tls_key_file=served.key,
            tls_client_ca_file=tmp_path / "clients.pem",
        ),
        "public",
    )
    with public_listener(tls=tls) as public:
        url = f"https://127.0.0.1:{public.port}"
        admin = Admin(url, tls=AdminTls(ca, shown.certificate, shown.key))
        assert admin.get("/livez") == {"live": True}
        admin.close()
        over_http = url.replace("https", "http")
        for asked, tls_of, hint in (
            (url, AdminTls(), "not trusted; name its authority with --ca-file"),
            (url, AdminTls(ca), "name it with --certificate-file"),
            (over_http, AdminTls(), "ask it over https"),
        ):
            admin = Admin(asked, tls=tls_of)
            with pytest.raises(NoAnswer, match=f"^{asked} does not answer: .*{hint}$"):
                admin.get("/livez")
            admin.close()


def test_a_listener_without_tls_is_told_from_one_that_is_away() -> None:
    """Asked over https it may speak plain http; one that is not there gets no advice about TLS."""
    with public_listener() as public:
        admin = Admin(f"https://127.0.0.1:{public.port}")
        with pytest.raises(NoAnswer, match=r"does it speak plain http\?$"):
            admin.get("/livez")
        admin.close()
    for scheme in ("http", "https"):
        admin = Admin(f"{scheme}://127.0.0.1:{public.port}")
        with pytest.raises(NoAnswer, match=r"does not answer: ConnectError$"):
            admin.get("/livez")
        admin.close()


def test_half_a_certificate_is_an_error(tmp_path: Path) -> None:
    """As is one that cannot be read: before anything is asked."""
    for tls, told in (
        (AdminTls(certificate_file=tmp_path / "c"), "--certificate-file, --certificate-key-file: name both or none"),
        (AdminTls(ca_file=tmp_path / "c"), f"--ca-file {tmp_path / 'c'}: cannot be used: FileNotFoundError"),
    ):
        with pytest.raises(ConfigError, match=f"^{told}$"):
            Admin("https://127.0.0.1:9", tls=tls)
