"""Ask whether known faults of security are in what is locked: with pip-audit, and only where its service answers.

pip-audit passes where it could not ask. So it is asked first about one package of which faults are known: where it tells
none, nothing was asked, and that is said. Exit status: 0 asked and none found, 1 found, 3 not asked.
"""

from __future__ import annotations

import argparse
import json
import subprocess  # nosec B404 # to run pip-audit
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_CONTROL = "urllib3==1.24.1"
"""A version of 2018 with several known faults."""
_LOCKS = ("requirements.lock", "deploy/requirements.lock", "deploy/build.lock")
_NOT_ASKED = 3
_SECONDS = 120


def main() -> int:
    """Ask, and return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", default=str(_ROOT / ".venv" / "bin" / "pip-audit"), help="pip-audit")
    program = options.parse_args().program
    if (why := _why_not(program)) is not None:
        print(f"audit: NOT ASKED: {why}; whether known faults are in the locks is not known", file=sys.stderr)
        return _NOT_ASKED
    found = False
    for lock in _LOCKS:
        command = [program, "--strict", "--disable-pip", "--require-hashes", "--requirement", str(_ROOT / lock)]
        found |= subprocess.run(command, check=False).returncode != 0  # noqa: S603  # nosec B603 # of the lines above
    print("audit: see above" if found else f"audit: asked about {len(_LOCKS)} locks, no known fault")
    return int(found)


def _why_not(program: str) -> str | None:
    """Return why nothing can be asked, None where pip-audit tells of the faults that are known."""
    with tempfile.TemporaryDirectory() as folder:
        control = Path(folder) / "control.txt"
        control.write_text(f"{_CONTROL}\n", encoding="utf-8")
        command = [program, "--disable-pip", "--no-deps", "--format", "json", "--requirement", str(control)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603  # nosec B603 # as above
            (told,) = json.loads(done.stdout)["dependencies"]
            known = told.get("vulns")
        except (OSError, subprocess.TimeoutExpired):
            return "pip-audit does not run, or does not end"
        except (ValueError, LookupError, TypeError, AttributeError):
            return "its service does not answer"
    return None if known else f"its service knows no fault of {_CONTROL}, which has some"


if __name__ == "__main__":
    sys.exit(main())
