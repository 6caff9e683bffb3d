"""Ask the admin listener of a running sidecar."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from cascade.cli.rollout_words import plain
from cascade.errors import CascadeError, ConfigError
from cascade.stages.certificates import KeyPair, Pem, client_context

__all__ = ["Admin", "AdminTls", "NoAnswer", "TurnedDown", "admin_of"]

_CONNECT_S: Final = 5.0
_READ_S: Final = 10.0
_ACT_S: Final = 240.0
"""An activation starts models, probes servers and asks smoke queries before it answers."""
_LARGEST_KEY: Final = 4096
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # nosec B104 # where it is reached from here


class TurnedDown(CascadeError):
    """Say that the sidecar will not, at which activation step where there is one, and why."""

    def __init__(self, what: str, why: tuple[str, ...]) -> None:
        super().__init__("; ".join((what, *why)))
        self.what = what
        self.why = why


class NoAnswer(CascadeError):
    """Say that no sidecar answers there, or none yet: a later try may do."""


@dataclass(frozen=True, slots=True)
class AdminTls:
    """Whom an https listener must prove to be, and what is shown to one that asks for a certificate."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def verified(self, url: str) -> ssl.SSLContext | bool:
        """Return what connections to an address are made with. Raises ConfigError."""
        if url.startswith("https:"):
            return self._context()
        if self != AdminTls():
            raise ConfigError(f"--ca-file, --certificate-file: {url} is not asked over TLS; write https")
        return True

    def _context(self) -> ssl.SSLContext:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigError("--certificate-file, --certificate-key-file: name both or none")
        pair = None
        if self.certificate_file is not None and self.key_file is not None:
            pair = KeyPair(
                Pem("--certificate-file", self.certificate_file), Pem("--certificate-key-file", self.key_file)
            )
        return client_context(None if self.ca_file is None else Pem("--ca-file", self.ca_file), pair)


class Admin:
    """The admin listener at ``url``. Each method raises NoAnswer, TurnedDown, and ConfigError for what was asked wrong.

    No redirect is followed, and no proxy of the environment is used: the key goes to this address alone.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        tls: AdminTls | None = None,
    ) -> None:
        self.url = url
        self._answered = False
        verify = (tls or AdminTls()).verified(url)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        timeout = httpx.Timeout(_READ_S, connect=_CONNECT_S)
        self._client = httpx.Client(
            headers=headers, timeout=timeout, trust_env=False, verify=verify, transport=transport
        )

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        """Return what a route tells."""
        return self._asked("GET", path, params=parameters)

    def post(self, path: str, **fields: Any) -> dict[str, Any]:
        """Ask for a change; return what it led to."""
        return self._asked("POST", path, json=fields, timeout=httpx.Timeout(_ACT_S, connect=_CONNECT_S))

    def upload(self, tar: bytes) -> str:
        """Hand over a bundle; return its digest."""
        headers = {"content-type": "application/x-tar"}
        timeout = httpx.Timeout(_ACT_S, connect=_CONNECT_S)
        return str(self._asked("POST", "/rollout/bundles", content=tar, headers=headers, timeout=timeout).get("digest"))

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _asked(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = self._client.request(method, self.url + path, **options)
        except httpx.TimeoutException:
            raise NoAnswer(f"{self.url} has not answered in time") from None
        except httpx.HTTPError as error:
            raise NoAnswer(f"{self.url} does not answer: {type(error).__name__}{self._hint(error)}") from None
        self._answered = True
        try:
            told = answer.json()
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise self._other(answer.status_code)
        if answer.is_success:
            return told
        raise self._refusal(answer.status_code, told)

    def _hint(self, error: httpx.HTTPError) -> str:
        """Return what may be amiss with TLS: a listener of it ends a connection that it refuses without a word."""
        over_tls, ended = (
            self.url.startswith("https:"),
            isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError),
        )
        if _has_cause(error, ssl.SSLCertVerificationError):
            return ": its certificate is not trusted; name its authority with --ca-file"
        if over_tls and _has_cause(error, ssl.SSLError):
            return ": no TLS is agreed on; does it speak plain http?"
        if isinstance(error, httpx.ConnectError) or not ended or self._answered:  # one that is restarted ends them too
            return ""
        if over_tls:
            return ": it may want another certificate of its clients, or one at all; name it with --certificate-file"
        return ": it may speak TLS; ask it over https"

    def _refusal(self, status: int, told: Mapping[str, Any]) -> CascadeError:
        rule = plain(told.get("error", ""))
        match status:
            case 409:
                why = tuple(plain(each) for each in told.get("why") or ())
                step = told.get("step")
                return TurnedDown("refused", why) if step is None else TurnedDown(f"refused at {plain(step)}", why)
            case 401 | 403:
                return ConfigError(f"{self.url}: {rule}; name a key with --key-env or --key-file")
            case 404:
                return self._other(status)
            case _ if status >= 500:
                return NoAnswer(f"{self.url}: {rule}")
            case _:
                return ConfigError(f"{self.url}: {rule}")

    def _other(self, status: int) -> CascadeError:
        said = f"{self.url} is not the admin listener of a sidecar that rolls releases out: status {status}"
        return NoAnswer(said) if status >= 500 else ConfigError(said)


def admin_of(url: str | None, key_env: str | None, key_file: Path | None, tls: AdminTls | None = None) -> Admin:
    """Return the listener that options name, else the one of the settings in the environment. Raises ConfigError."""
    return Admin(_default_url() if url is None else _checked(url), _key(key_env, key_file), tls=tls)


def _has_cause(error: BaseException, kind: type[BaseException]) -> bool:
    """Tell whether an error is of a kind, or came of one."""
    cause = error.__cause__ or error.__context__
    return isinstance(error, kind) or (cause is not None and _has_cause(cause, kind))


def _default_url() -> str:
    from cascade.cli.options import settings_from  # settings are most of what there would be to import

    settings = settings_from(None)
    host = _EVERYWHERE.get(settings.admin_host, settings.admin_host)
    scheme = "http" if settings.admin_tls_certificate_file is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.admin_port}"


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # a port that is none raises too
    except ValueError:
        parts = None
    good = parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)
    if parts is None or not good or parts.query or parts.fragment or not (url.isascii() and url.isprintable()):
        raise ConfigError("--admin: must be an http or https address, such as http://127.0.0.1:8788")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("--admin: an address holds no key; name one with --key-env or --key-file")
    return parts.geturl().rstrip("/")


def _key(key_env: str | None, key_file: Path | None) -> str | None:
    """Read the key from where it is kept; it is never on the command line, which others on a machine can see."""
    if key_env is not None and key_file is not None:
        raise ConfigError("--key-env, --key-file: name one")
    if key_env is not None:
        key, where = os.environ.get(key_env, ""), f"--key-env {key_env}"
    elif key_file is not None:
        key, where = _from_file(key_file), f"--key-file {key_file}"
    else:
        return None
    key = key.strip()
    if not key:
        raise ConfigError(f"{where}: there is no key")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{where}: a key is one line of printable ASCII without spaces")
    return key


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_KEY + 1)
    except OSError as error:
        raise ConfigError(f"--key-file {path}: cannot be read: {type(error).__name__}") from None
    if len(data) > _LARGEST_KEY:
        raise ConfigError(f"--key-file {path}: it is too large for a key")
    return data.decode("utf-8", "replace")
