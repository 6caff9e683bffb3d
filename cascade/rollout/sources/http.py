"""The desired release at an address: a bundle's tar, asked for again by its ETag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx

from cascade.errors import ConfigError
from cascade.policy.release import Auth
from cascade.rollout.sources.address import shown_place
from cascade.rollout.sources.fetching import FETCH_S, bundle_transport, fetch
from cascade.rollout.sources.looking import Looking, ReleaseSource
from cascade.rollout.sources.tags import Tagged, Tags
from cascade.rollout.store import UPLOADED, ReleaseStore, Stored
from cascade.stages.upstream import read_token

__all__ = ["HttpSource"]


class HttpSource(ReleaseSource):
    """Poll an address. The next poll is the retry; each has an end in bytes and seconds.

    An answer that is refused is asked for again whole, one that was taken only if its ETag is another. Under one ETag
    stands one release: another one is refused, since 304 then says nothing any more.
    """

    def __init__(
        self,
        url: str,
        store: ReleaseStore,
        looking: Looking | None = None,
        *,
        token_file: Path | None = None,
        transport: Callable[[], httpx.AsyncBaseTransport] = bundle_transport,
        seconds: float = FETCH_S,
    ) -> None:
        super().__init__(store, looking or Looking())
        self._url = url
        self._tags = Tags(store.folder)
        self._token_file = token_file
        self._transport = transport
        self._seconds = seconds

    async def _look(self) -> Stored:
        try:
            return await self._asked()
        except ConfigError as error:
            told = str(error).removeprefix(f"release {UPLOADED}: ")
            raise ConfigError(f"release {shown_place(self._url)}: {told}") from None

    async def _asked(self) -> Stored:
        off_loop = self._looking.off_loop
        token = await off_loop(self._token)
        tagged, kept = await off_loop(self._kept)
        transport = self._transport()
        try:
            etag = None if tagged is None or kept is None else tagged.etag
            fetched = await fetch(transport, self._url, etag=etag, token=token, seconds=self._seconds)
        finally:
            await transport.aclose()
        body = fetched.body
        if body is None:
            assert kept is not None  # noqa: S101  # nosec B101 # only then an ETag was sent
            return kept
        return await off_loop(lambda: self._taken(body, fetched.etag, tagged))

    def _token(self) -> str | None:
        return None if self._token_file is None else read_token(Auth(file=str(self._token_file)))

    def _kept(self) -> tuple[Tagged | None, Stored | None]:
        """Return what is known of the address, and its bundle where that is still whole."""
        tagged = self._tags.of(self._url)
        return tagged, None if tagged is None else self._store.stored(tagged.digest)

    def _taken(self, body: bytes, etag: str | None, before: Tagged | None) -> Stored:
        found = self._store.put(body)
        if etag is not None and before is not None and etag == before.etag and found.digest != before.digest:
            raise ConfigError("the release is another under the same ETag; give what changes another ETag")
        if etag is not None:
            self._tags.keep(self._url, Tagged(etag, found.digest))
        return found
