"""The exact form of a model's file, made in a process of its own: protobuf holds Python's lock while it reads and writes.

python -m cascade.stages.graph.apart FILE
"""

from __future__ import annotations

import subprocess  # nosec B404 # this interpreter with this module, and no shell
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cascade.stages.graph.exact import WhyExported, exact_form

__all__ = ["exact_form_apart", "main"]

_MOST_S: Final = 120.0
_MADE: Final = b"+"
_WHY: Final = b"-"


def exact_form_apart(path: Path) -> bytes | WhyExported:
    """Return what `exact_form` returns, while other threads of this process go on: answers wait for no graph."""
    command = [sys.executable, "-P", "-m", __name__, str(path)]
    try:
        done = subprocess.run(  # noqa: S603  # nosec B603 # see above
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_MOST_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return WhyExported.NOT_MADE
    told, rest = done.stdout[:1], done.stdout[1:]
    if told == _WHY:
        return WhyExported(rest.decode())
    return rest if told == _MADE else WhyExported.NOT_MADE


def main(arguments: Sequence[str]) -> None:
    """Write the exact form of the file that is named, or why there is none."""
    exact = exact_form(Path(arguments[0]))
    answer = _WHY + exact.encode() if isinstance(exact, WhyExported) else _MADE + exact
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
