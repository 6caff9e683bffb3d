"""What holds of every parser of what somebody else made: only its errors, none of the content in them, an end, and little memory."""

from __future__ import annotations

import atexit
import shutil
import signal
import tempfile
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from tests.fuzz.mutation import CANARY, KEY

__all__ = ["Parser", "holds", "in_file", "lines", "scratch"]

_CPU_SECONDS: Final = 10.0
"""No time that is told: what takes so long of this process's own work on a few kilobytes has no end."""
_FIXED_BYTES: Final = 80_000_000
"""Some read into a buffer as large as what they accept at most."""
_BYTES_A_BYTE: Final = 400
"""Memory that a parser may take for a byte: a list in JSON of two bytes is one of 56."""


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser by what it reads; ``parse`` raises ``raises`` and nothing else.

    ``form`` is what ``examples`` are: those of JSON are changed by nodes too. ``names_keys`` tells that an error may
    name a key, as that of a file which an operator wrote does.
    """

    name: str
    examples: tuple[bytes, ...]
    parse: Callable[[bytes], Any]
    raises: tuple[type[Exception], ...]
    form: Literal["json", "bytes"] = "json"
    names_keys: bool = False

    def __str__(self) -> str:
        return self.name


def holds(parser: Parser, data: bytes, *, is_whole: bool) -> None:
    """Parse, and assert what must hold. ``is_whole`` tells that keys are still keys and values values."""
    _warm(parser)
    told = shown = None
    tracemalloc.start()
    try:
        with _ending():
            parser.parse(data)
    except parser.raises as error:
        told, shown = str(error), "".join(traceback.format_exception(error))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < _FIXED_BYTES + _BYTES_A_BYTE * len(data)
    if shown is None:
        return
    assert told
    assert len(shown) < 20_000
    assert CANARY not in shown or (parser.names_keys and not is_whole)
    assert KEY not in shown or parser.names_keys


def scratch() -> Path:
    """Return a folder that is gone when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="cascade-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def in_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """Return a parser of a file of this name in a folder of its own."""
    folder = scratch()

    def parse(data: bytes) -> Any:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return parse


def lines(*values: Mapping[str, Any]) -> bytes:
    """Return values as lines of JSON."""
    return b"".join(orjson.dumps(dict(value)) + b"\n" for value in values)


@cache
def _warm(parser: Parser) -> None:
    """Have imported what the parser imports at its first use: that is not memory of an input."""
    with suppress(*parser.raises):
        parser.parse(parser.examples[0])


@contextmanager
def _ending() -> Iterator[None]:
    """Raise where the process has worked too long; what else the machine does has no part in it."""

    def too_long(number: int, frame: object) -> None:
        raise AssertionError("the parser does not end")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
