"""What files hold, read again when they change: a file that cannot be used leaves what was read before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from cascade.errors import ConfigError
from cascade.telemetry.logs import note

__all__ = ["Reread"]

Held = TypeVar("Held")

_Stamp = tuple[int, int, int]
"""What changes when a file does: time of its last change, size, and number."""


class Reread(Generic[Held]):
    """Hold what ``read`` makes of files, and make it anew when one of them has changed.

    ``what`` and ``setting`` are told in the log, and what ``tell`` says of it. ``reloaded`` is told whether another
    reading was good. At the start ``read`` may raise ConfigError; later that is logged, and what was held counts.
    """

    def __init__(
        self,
        files: Sequence[Path],
        read: Callable[[], Held],
        *,
        what: str,
        setting: str,
        reloaded: Callable[[bool], None] = lambda good: None,
        tell: Callable[[Held], dict[str, Any]] = lambda held: {},
    ) -> None:
        self._files = files
        self._read = read
        self._what = what
        self._setting = setting
        self._reloaded = reloaded
        self._tell = tell
        self._stamps = self._look_at_files()
        self._failed: str | None = None
        self.held = read()

    def look(self) -> None:
        """Read the files again if one has changed, or could not be used the last time."""
        stamps = self._look_at_files()
        if stamps == self._stamps and self._failed is None:
            return
        self._stamps = stamps
        try:
            held = self._read()
        except ConfigError as error:
            self._fail(str(error))
            return
        self.held, self._failed = held, None
        self._reloaded(True)
        note("info", f"{self._what} read again", setting=self._setting, **self._tell(held))

    async def watch(self, seconds: float, look: Callable[[], None] | None = None) -> None:
        """Look again and again, ``seconds`` apart, or have ``look`` do so; the files may be on a disk that is slow."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(look or self.look)
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: else nothing is ever taken out again
                self._fail(type(error).__name__)

    def _fail(self, why: str) -> None:
        self._reloaded(False)
        if why != self._failed:
            note("error", f"{self._what} not read again: the last good ones count", setting=self._setting, why=why)
        self._failed = why

    def _look_at_files(self) -> list[_Stamp | None]:
        return [_stamp(path) for path in self._files]


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
