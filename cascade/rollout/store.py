"""Keep bundles by digest, whole, so that a start needs nobody else."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from cascade.errors import ConfigError
from cascade.rollout.artefacts import read_bounded
from cascade.rollout.bundle import check_signed, contents_of
from cascade.rollout.load import LoadedRelease, offline, release_from
from cascade.rollout.names import is_digest
from cascade.rollout.signing import ReleaseKeys
from cascade.rollout.source import Source, open_source, opened_tar
from cascade.rollout.tar import tar_bytes
from cascade.rollout.whole_file import ASIDE, write_whole
from cascade.telemetry.logs import note

__all__ = ["KEPT", "UPLOADED", "NotSigned", "ReleaseStore", "Stored", "open_store"]

KEPT: Final = 20
"""Bundles that are kept beside those that are held."""
_NAME: Final = re.compile(r"[0-9a-f]{64}\.tar")
_GOOD: Final = "good.json"
_LARGEST_GOOD: Final = 65_536
_FOLDER: Final = "releases"
UPLOADED: Final = Path("uploaded")
"""What a bundle is called in errors that came as bytes."""


class NotSigned(ConfigError):
    """Say that a bundle is not signed by one of the keys, or not as it is."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A bundle of the store: the digest of its release, the release's name, and where it lies."""

    digest: str
    name: str
    path: Path


@dataclass(slots=True)
class ReleaseStore:
    """Bundles as tars in ``folder``, each written aside and renamed: what is there is whole, whenever a process ends.

    Only what holds all that its release names is taken, and with ``keys`` only what one of them signed. They are asked
    for at each use, so that a file of keys may change. ``kept`` bundles are kept beside those that are held, the newest.
    """

    folder: Path
    keys: Callable[[], ReleaseKeys | None] = lambda: None
    kept: int = KEPT
    _held: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        """Make the folder, and clear away what an end in the middle of writing left. Raises ConfigError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(f"{ASIDE}*"):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.folder}: cannot be used: {type(error).__name__}") from None

    def put(self, bundle: bytes | Path) -> Stored:
        """Take a bundle, as the bytes of a tar or from where it lies, and return it as it is kept.

        Raises ConfigError for what is no release, lacks what it names, is not signed where that is asked for, or cannot
        be written. What was kept under the digest stays until its place is taken in one step.
        """
        loaded, data = self._whole(opened_tar(UPLOADED, bundle) if isinstance(bundle, bytes) else open_source(bundle))
        path = self._place(loaded.digest)
        if not self._is_there(path, data):
            damaged = path.exists() and self.stored(loaded.digest) is None
            write_whole(path, data)
            if damaged:
                name = loaded.release.release
                note("warning", "a kept release was damaged; it is whole again", release=name, digest=loaded.digest)
        else:
            with suppress(OSError):  # it only looks older than it is
                os.utime(path)
        self._prune(loaded.digest)
        return Stored(loaded.digest, loaded.release.release, path)

    def look(self, bundle: Path) -> Stored:
        """Return a bundle as it lies, without taking it. Raises ConfigError for what `put` would not take."""
        loaded, _ = self._whole(open_source(bundle))
        return Stored(loaded.digest, loaded.release.release, bundle)

    def _whole(self, source: Source) -> tuple[LoadedRelease, bytes]:
        """Return the release of a bundle that may be kept, and the bundle as a tar."""
        loaded = release_from(source, offline(os.environ))
        try:
            self._check(source, loaded)
            return loaded, tar_bytes(contents_of(source, loaded))
        except ConfigError as error:
            raise type(error)(f"release {source.path}: {error}") from None

    def _check(self, source: Source, loaded: LoadedRelease) -> None:
        keys = self.keys()
        if keys is None:
            return
        try:
            check_signed(source, loaded, keys)
        except ConfigError as error:
            raise NotSigned(str(error)) from None

    def path(self, digest: str) -> Path | None:
        """Return where the bundle of a digest lies, None where it is not kept, is damaged, or is not signed by now."""
        found = self.stored(digest)
        return None if found is None else found.path

    def stored(self, digest: str) -> Stored | None:
        """Return the bundle of a digest, read whole again, None as `path` does."""
        path = self._place(digest)
        try:
            source = open_source(path)
            loaded = release_from(source, offline(os.environ))
            self._check(source, loaded)
            contents_of(source, loaded)
        except ConfigError:
            return None
        return Stored(digest, loaded.release.release, path) if loaded.digest == digest else None

    def digests(self) -> list[str]:
        """Return the digests of what is kept, the newest first. Nothing is read of it."""
        return [f"sha256:{path.stem}" for path in self._newest_first()]

    def hold(self, digests: Collection[str]) -> None:
        """Never let go of these, the stable release and the candidate; those held before are as others again."""
        self._held = frozenset(digests)

    def good(self, digest: str) -> None:
        """Note that a release decided all traffic: the next start may begin with it. Raises ConfigError."""
        known = [digest, *(each for each in self.goods() if each != digest)]
        write_whole(self.folder / _GOOD, orjson.dumps(known[: self.kept + 1]))

    def goods(self) -> list[str]:
        """Return the digests of the releases that decided all traffic, the latest first; they may be gone or damaged."""
        try:
            known = orjson.loads(read_bounded(self.folder / _GOOD, _LARGEST_GOOD, plain=True))
        except (ConfigError, orjson.JSONDecodeError):
            return []
        if not isinstance(known, list):
            return []
        return [each for each in known if isinstance(each, str) and is_digest(each)]

    def _place(self, digest: str) -> Path:
        name = f"{digest.removeprefix('sha256:')}.tar"
        if _NAME.fullmatch(name) is None:
            raise ConfigError(f"{digest[:80]!r} is no digest of a release")
        return self.folder / name

    def _is_there(self, path: Path, data: bytes) -> bool:
        try:
            return path.is_file() and read_bounded(path, len(data)) == data
        except ConfigError:
            return False

    def _newest_first(self) -> list[Path]:
        found: list[tuple[int, Path]] = []
        for path in self.folder.glob("*.tar"):
            with suppress(OSError):  # another process may have taken it away
                if _NAME.fullmatch(path.name):
                    found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found, reverse=True)]

    def _prune(self, newest: str) -> None:
        """Let go of the oldest; what was good last, and before that, is held as well."""
        held = {newest, *self._held, *self.goods()[:2]}
        others = [path for path in self._newest_first() if f"sha256:{path.stem}" not in held]
        for path in others[self.kept :]:
            with suppress(OSError):  # the next time that a bundle comes
                path.unlink(missing_ok=True)


@contextmanager
def open_store(state_folder: Path | None, keys: Callable[[], ReleaseKeys | None]) -> Iterator[ReleaseStore]:
    """Give the store in a state folder; without one, a store that is gone at the end. Raises ConfigError."""
    if state_folder is not None:
        yield ReleaseStore(state_folder / _FOLDER, keys)
        return
    with tempfile.TemporaryDirectory(prefix="cascade-") as folder:
        yield ReleaseStore(Path(folder) / _FOLDER, keys)
