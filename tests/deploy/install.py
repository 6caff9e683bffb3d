"""Install what the chart and the Dockerfile are checked with; run it with `scripts/deploy-tools install`."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.engines.environments import Environment, locked_by
from tests.engines.install import install_all, refuse_other_python

__all__ = ["TOOLS", "main"]

TOOLS: Final[Environment] = locked_by(Path(__file__).resolve().parent / "tools.txt")


def main(arguments: list[str]) -> int:
    """Install the tools; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/deploy-tools", description="Install what the chart is checked with.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="build the environment if it is missing or half-installed")
    parser.parse_args(arguments)
    refuse_other_python(parser, "tools")
    return install_all([TOOLS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
