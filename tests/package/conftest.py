"""The wheel and the archive of the sources, built once."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

__all__ = ["ROOT", "Built"]

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Built:
    """The archive of the sources, the wheel that was built from it, and the one that was built from the checkout."""

    sdist: Path
    wheel: Path
    direct: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build without a network, with the tools of the lock."""
    folder = tmp_path_factory.mktemp("dist")

    def build(out: str, *options: str) -> None:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / out), *options, str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    build("both")
    build("direct", "--wheel")
    (sdist,) = (folder / "both").glob("*.tar.gz")
    (wheel,) = (folder / "both").glob("*.whl")
    (direct,) = (folder / "direct").glob("*.whl")
    return Built(sdist, wheel, direct)
