"""Install the engines that `tests.engines.servers` starts; run it with `scripts/engines install`."""

import argparse
import fcntl
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager

from .environments import ENVIRONMENTS, Engine, Environment, environment

__all__ = ["install", "main"]

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


def main(arguments: list[str]) -> int:
    """Install the named engines, by default all, and say what was done; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/engines", description="Install the real servers that tests start.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("install", help="build the environments that are missing or half-installed")
    command.add_argument("engine", nargs="*", type=Engine, help=f"of {', '.join(Engine)}; default: all")
    options = parser.parse_args(arguments)
    if sys.version_info[:2] != (3, 11):
        parser.error("the engines are locked for Python 3.11")
    for engine in options.engine or Engine:
        target = environment(engine)
        started = time.monotonic()
        try:
            built = install(target)
        except subprocess.CalledProcessError:
            print(f"{target.folder.name}: pip failed, see above", file=sys.stderr)
            return 1
        outcome = f"installed in {time.monotonic() - started:.0f} s" if built else "already installed"
        print(f"{target.folder.name}: {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
