"""The installer of engines finds its Python, or says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "engines"
_OTHER = "#!/bin/sh\nexit 1\n"
_RIGHT = '#!/bin/sh\ncase "$1" in -c) exit 0 ;; esac\necho "$(basename "$0") $*"\n'


def run(folder: Path, programs: dict[str, str], **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only these programs are Pythons."""
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o755)
    for name in ("bash", "dirname", "basename", "sh"):
        if not (folder / name).exists():
            (folder / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    return subprocess.run(
        [_SCRIPT, "install"],
        env={"PATH": str(folder), **settings},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("programs", "settings", "chosen"),
    [
        ({"python3.11": _RIGHT, "python3": _RIGHT}, {}, "python3.11"),
        ({"python3": _RIGHT}, {}, "python3"),
        ({"python3.11": _RIGHT, "python3": _OTHER}, {}, "python3.11"),
        ({"mine": _RIGHT, "python3.11": _RIGHT}, {"PYTHON": "mine"}, "mine"),
        ({"mine": _OTHER, "python3.11": _RIGHT}, {"PYTHON": "mine"}, "python3.11"),
    ],
)
def test_b5_the_first_python_of_the_right_version_is_taken(
    tmp_path: Path, programs: dict[str, str], settings: dict[str, str], chosen: str
) -> None:
    """The named one, then python3.11, then python3: whichever is 3.11 installs the engines."""
    done = run(tmp_path, programs, **settings)
    assert (done.returncode, done.stdout) == (0, f"{chosen} -m tests.engines.install install\n")


@pytest.mark.parametrize("programs", [{}, {"python3": _OTHER}])
def test_b5_without_the_right_version_the_script_says_what_to_install(tmp_path: Path, programs: dict[str, str]) -> None:
    """No traceback: the version that is wanted and two ways to give it."""
    done = run(tmp_path, programs)
    assert done.returncode == 1
    assert "locked for Python 3.11" in done.stderr
    assert "install Python 3.11, or set PYTHON" in done.stderr


def test_b5_the_installer_itself_names_the_python_that_is_another_version() -> None:
    """Called with another Python, the module refuses by name."""
    asked = "import sys; sys.version_info = (3, 13, 0); from tests.engines.install import main; main(['install'])"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=_SCRIPT.parents[1],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"locked for Python 3.11, and {sys.executable} is another version" in done.stderr
