"""Install the clients that the tests drive; run it with `scripts/clients install`."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.engines.environments import Environment, locked_by
from tests.engines.install import install_all, refuse_other_python

__all__ = ["CLIENTS", "main"]

CLIENTS: Final[Environment] = locked_by(Path(__file__).resolve().parent / "clients.txt")


def main(arguments: list[str]) -> int:
    """Install the clients; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/clients", description="Install the rerank clients that tests drive.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="build the environment if it is missing or half-installed")
    parser.parse_args(arguments)
    refuse_other_python(parser, "clients")
    return install_all([CLIENTS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
