"""Install the engines that `tests.engines.servers` starts; run it with `scripts/engines install`."""

import argparse
import fcntl
import importlib.util
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .environments import ENVIRONMENTS, Engine, Environment, environment

__all__ = ["install", "install_all", "main", "refuse_other_python"]

# The locks leave packages out on purpose, hence --no-deps; wheels only, so that nothing is built.
_PIP_INSTALL = ("-m", "pip", "install", "-qq", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold the lock that keeps a second installation from clearing what this one is writing."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(target: Environment) -> bool:
    """Build the environment unless it is complete; return whether it was built.

    A half-installed folder is removed first. pip's own configuration says where packages come from.
    Raises `subprocess.CalledProcessError` when pip fails; the folder then stays without its marker.
    """
    with _one_at_a_time():
        if target.marker.exists():
            return False
        shutil.rmtree(target.folder, ignore_errors=True)
        venv.create(target.folder, with_pip=True)
        subprocess.run([target.bin / "python", *_PIP_INSTALL, target.requirements], check=True)
        target.marker.touch()
        return True


def install_all(targets: Iterable[Environment]) -> int:
    """Install one after the other, say what was done, and return the exit status."""
    for target in targets:
        started = time.monotonic()
        try:
            built = install(target)
        except subprocess.CalledProcessError:
            print(f"{target.folder.name}: pip failed, see above", file=sys.stderr)
            return 1
        outcome = f"installed in {time.monotonic() - started:.0f} s" if built else "already installed"
        print(f"{target.folder.name}: {outcome}", flush=True)
    return 0


def refuse_other_python(parser: argparse.ArgumentParser, what: str) -> None:
    """Exit with a usage error where this Python cannot install what the locks name."""
    if sys.version_info[:2] != (3, 11):
        parser.error(f"the {what} are locked for Python 3.11, and {sys.executable} is another version")
    if importlib.util.find_spec("ensurepip") is None:
        parser.error(f"{sys.executable} makes no environments: install its venv module (Debian: python3.11-venv)")


def main(arguments: list[str]) -> int:
    """Install the named engines, by default all; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/engines", description="Install the real servers that tests start.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("install", help="build the environments that are missing or half-installed")
    command.add_argument("engine", nargs="*", type=Engine, help=f"of {', '.join(Engine)}; default: all")
    options = parser.parse_args(arguments)
    refuse_other_python(parser, "engines")
    return install_all(environment(engine) for engine in options.engine or Engine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
