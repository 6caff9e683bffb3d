"""Which release each address had under which ETag, kept over restarts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from cascade.errors import ConfigError
from cascade.rollout.artefacts import read_bounded
from cascade.rollout.names import is_digest
from cascade.rollout.whole_file import write_whole

__all__ = ["Tagged", "Tags"]

_NAME: Final = "tags.json"
_LARGEST: Final = 65_536
_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class Tagged:
    """The release that an address had under an ETag."""

    etag: str
    digest: str


@dataclass(frozen=True, slots=True)
class Tags:
    """What is known of addresses, in a file beside the bundles. An address may hold a secret: its hash is kept."""

    folder: Path

    def of(self, url: str) -> Tagged | None:
        """Return what is known of an address."""
        found = self._read().get(_name(url))
        match found:
            case {"etag": str(etag), "digest": str(digest)} if is_digest(digest):
                return Tagged(etag, digest)
            case _:
                return None

    def keep(self, url: str, tagged: Tagged) -> None:
        """Remember it, and forget what is oldest. Raises ConfigError where it cannot be written."""
        known = {name: value for name, value in self._read().items() if name != _name(url)}
        known[_name(url)] = {"etag": tagged.etag, "digest": tagged.digest}
        write_whole(self.folder / _NAME, orjson.dumps(dict([*known.items()][-_MOST:])))

    def _read(self) -> dict[str, object]:
        try:
            known = orjson.loads(read_bounded(self.folder / _NAME, _LARGEST, plain=True))
        except (ConfigError, orjson.JSONDecodeError):
            return {}
        return known if isinstance(known, dict) else {}


def _name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
