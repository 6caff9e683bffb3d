"""Who is let in at a listener: its file of keys, read again when it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError, RequestError, RequestFault
from cascade.server.dialects.base import Parsed
from cascade.server.key_file import parse_keys
from cascade.server.keys import Key, Right, presented_key
from cascade.telemetry.rereading import Reread
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
        self._now = now
        self._denied = denied
        try:
            self._keys = Reread(
                [path],
                lambda: parse_keys(path),
                what="keys",
                setting=setting,
                reloaded=reloaded,
                tell=lambda ring: {"keys": len(ring)},
            )
        except ConfigError as error:
            raise ConfigError(f"{setting}: {error}") from None

    @property
    def live(self) -> int:
        """Return how many keys open something at this moment."""
        return self._keys.held.live(self._now())

    def check(self, headers: Mapping[str, str], right: Right | None) -> Key:
        """Return the key that a request shows; it must have ``right``. Raises RequestError, 401 or 403."""
        presented = presented_key(headers)
        if presented is None:
            raise self.refusal(Denied.MISSING)
        key = self._keys.held.find(presented)
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
        self._keys.look()

    async def watch(self, seconds: float) -> None:
        """Look again and again, ``seconds`` apart."""
        await self._keys.watch(seconds)


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
