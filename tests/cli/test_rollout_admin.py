"""What an admin listener may answer, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from cascade.cli.rollout_admin import Admin, NoAnswer
from cascade.errors import CascadeError, ConfigError

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


def test_the_key_follows_no_redirect() -> None:
    """It goes to the address that was named, and nowhere else."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.host} {request.headers['authorization']}")
        return httpx.Response(307, headers={"location": "http://elsewhere.test/"}, json={"error": "moved"})

    with pytest.raises(ConfigError, match="moved"):
        _admin(answer).post("/rollout/abort", reason="")
    assert asked == ["sidecar.test Bearer a-key"]
