"""Connections of urllib3 that have one time for all they do: look up, connect, shake hands, send, and read the answer."""

from __future__ import annotations

import io
import math
import socket
import threading
import time
from http.client import HTTPResponse
from typing import Any, Final

from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.connection import allowed_gai_family

__all__ = ["Until", "timed"]

_OVER: Final = "the time is over"


class Until:
    """The time, on the monotonic clock in seconds, at which what is under way has to be over."""

    def __init__(self) -> None:
        self.at = math.inf

    def left_s(self) -> float:
        """Return how long there is left. Raises TimeoutError where there is nothing."""
        left_s = self.at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(_OVER)
        return left_s


class _Reads(io.RawIOBase):
    """Read from a socket until one time: each read alone could take as long as all of them may."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: Until) -> None:
        self._raw = raw
        self._sock = sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s, before = self._until.left_s(), self._sock.gettimeout()
        self._sock.settimeout(left_s)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(before)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Timed(HTTPConnection):
    """Take no longer than ``until``. Of several addresses each has an even share of what is left."""

    until: Until

    def _new_conn(self) -> socket.socket:
        name, addresses = self._dns_host, self._looked_up()
        try:
            for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
                self.timeout, self._dns_host = self.until.left_s() / left, address
                try:
                    sock = super()._new_conn()
                except (ConnectTimeoutError, NewConnectionError):
                    if left == 1:
                        raise
                else:
                    sock.settimeout(self.until.left_s())  # for the handshake
                    return sock
        finally:
            self._dns_host = name
        raise NewConnectionError(self, "no address")

    def _looked_up(self) -> list[str]:
        """Return the addresses of the host. Nothing can end a look-up: one that takes too long is left alone."""
        found: list[str] = []
        host, port, left_s = self._dns_host.strip("[]"), self.port, self.until.left_s()

        def look() -> None:
            try:
                told = socket.getaddrinfo(host, port, allowed_gai_family(), socket.SOCK_STREAM)
            except (OSError, UnicodeError):  # no such name
                return
            found.extend(dict.fromkeys(str(address[0]) for *_, address in told))

        looking = threading.Thread(target=look, name="look-up", daemon=True)
        looking.start()
        looking.join(left_s)
        if looking.is_alive():
            raise ConnectTimeoutError(self, _OVER)
        return found

    def send(self, data: Any) -> None:
        if self.sock is not None:
            self.sock.settimeout(self.until.left_s())
        super().send(data)


def timed(kind: type[Any], until: Until) -> type[Any]:
    """Return a kind of connection whose work is over by the ``until`` of the moment."""

    def answer(sock: socket.socket, *args: Any, **named: Any) -> HTTPResponse:
        made = HTTPResponse(sock, *args, **named)
        made.fp = io.BufferedReader(_Reads(made.fp.detach(), sock, until))
        return made

    return type("Connection", (_Timed, kind), {"until": until, "response_class": staticmethod(answer)})
