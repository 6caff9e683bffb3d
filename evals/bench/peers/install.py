"""Install the libraries that `evals.bench.cpu` compares with; run it with `scripts/peers install`."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.engines.environments import Environment, locked_by
from tests.engines.install import install_all, refuse_other_python

__all__ = ["INFINITY", "LIBRARIES", "main"]

_HERE: Final = Path(__file__).resolve().parent
LIBRARIES: Final[Environment] = locked_by(_HERE / "libraries.txt")
INFINITY: Final[Environment] = locked_by(_HERE / "infinity.txt")


def main(arguments: list[str]) -> int:
    """Install both environments; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/peers", description="Install the libraries that the CPU benchmark compares with."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="build the environments that are missing or half-installed")
    parser.parse_args(arguments)
    refuse_other_python(parser, "libraries")
    return install_all([LIBRARIES, INFINITY])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
