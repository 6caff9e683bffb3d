"""Who is let in at a listener: its file of keys, read again when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError, RequestError, RequestFault
from cascade.server.dialects.base import Parsed
from cascade.server.key_file import parse_keys
from cascade.server.keys import Key, Right, presented_key
from cascade.telemetry.logs import note
from cascade.types import Denied, Request

__all__ = ["Access", "admitted_by"]

_RULES: Final = {
    Denied.MISSING: "a key is asked for",
    Denied.UNKNOWN: "the key is not known",
    Denied.EXPIRED: "the key has expired",
    Denied.NOT_ALLOWED: "the key does not allow this",
    Denied.OTHER_TENANT: "the key is another tenant's",
}
_FORBIDDEN: Final = (Denied.NOT_ALLOWED, Denied.OTHER_TENANT)

Stamp = tuple[int, int, int]
"""What changes when a file does: time of its last change, size, and number."""


class Access:
    """Let in who shows a key of the file. ``setting`` is what names the file, for errors and the log.

    ``now`` is the time of day, in seconds since 1970. A file that cannot be used leaves the keys as they were; at
    the start it is a ConfigError.
    """

    def __init__(
        self,
        path: Path,
        setting: str,
        *,
        now: Callable[[], float],
        denied: Callable[[Denied], None] = lambda why: None,
        reloaded: Callable[[bool], None] = lambda good: None,
    ) -> None:
        self._path = path
        self._setting = setting
        self._now = now
        self._denied = denied
        self._reloaded = reloaded
        self._stamp = _stamp(path)
        self._failed: str | None = None
        try:
            self._ring = parse_keys(path)
        except ConfigError as error:
            raise ConfigError(f"{setting}: {error}") from None

    @property
    def live(self) -> int:
        """Return how many keys open something at this moment."""
        return self._ring.live(self._now())

    def check(self, headers: Mapping[str, str], right: Right | None) -> Key:
        """Return the key that a request shows; it must have ``right``. Raises RequestError, 401 or 403."""
        presented = presented_key(headers)
        if presented is None:
            raise self.refusal(Denied.MISSING)
        key = self._ring.find(presented)
        if key is None:
            raise self.refusal(Denied.UNKNOWN)
        if key.expires is not None and self._now() >= key.expires:
            raise self.refusal(Denied.EXPIRED)
        if right is not None and right not in key.rights:
            raise self.refusal(Denied.NOT_ALLOWED)
        return key

    def refusal(self, why: Denied) -> RequestError:
        """Count a request that is not let in; return the error to raise."""
        self._denied(why)
        fault = RequestFault.FORBIDDEN if why in _FORBIDDEN else RequestFault.UNAUTHORIZED
        return RequestError(fault, "tenant" if why is Denied.OTHER_TENANT else "authorization", _RULES[why])

    def look(self) -> None:
        """Read the file again if it has changed, or could not be read the last time."""
        stamp = _stamp(self._path)
        if stamp == self._stamp and self._failed is None:
            return
        self._stamp = stamp
        try:
            ring = parse_keys(self._path)
        except ConfigError as error:
            self._fail(str(error))
            return
        self._ring, self._failed = ring, None
        self._reloaded(True)
        note("info", "keys read again", setting=self._setting, keys=len(ring))

    async def watch(self, seconds: float) -> None:
        """Look again and again, ``seconds`` apart; the file may be on a disk that is slow."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self.look)
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: else no key is ever taken out again
                self._fail(type(error).__name__)

    def _fail(self, why: str) -> None:
        self._reloaded(False)
        if why != self._failed:
            note("error", "keys not read again: the last good ones count", setting=self._setting, why=why)
        self._failed = why


def admitted_by(access: Access, key: Key, parsed: Parsed) -> Parsed:
    """Return a parsed body as its key allows: in the key's name, and in no earlier class than the key's.

    Raises RequestError where it names another tenant than the key's, unless the key may name any.
    """
    request = parsed.request
    if request.tenant is not None and request.tenant != key.tenant and Right.ANY_TENANT not in key.rights:
        raise access.refusal(Denied.OTHER_TENANT)
    tenant = request.tenant or key.tenant
    priority = max(request.priority, key.priority)
    if (tenant, priority) == (request.tenant, request.priority):
        return parsed
    return replace(parsed, requests=tuple(_as(each, tenant, priority) for each in parsed.requests))


def _as(request: Request, tenant: str | None, priority: int) -> Request:
    return replace(request, tenant=tenant, priority=priority)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
