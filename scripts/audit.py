"""Ask whether known faults of security are in what is locked: with pip-audit, and only where its service answers.

pip-audit passes where it could not ask. So one package is asked about first of which faults are known: where none is told,
nothing was asked, and that is said. Exit status: 0 asked and none found, 1 found, 3 not asked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess  # nosec B404 # to run pip-audit
import sys
import urllib.error
import urllib.request
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_CONTROL = "urllib3/1.24.1"
"""A version of 2018 with several known faults."""
_LOCKS = ("requirements.lock", "deploy/requirements.lock", "deploy/build.lock")
_NOT_ASKED = 3
_SECONDS = 20


def main() -> int:
    """Ask, and return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--service", default="https://pypi.org/pypi", help="where pip-audit asks")
    why = _why_not(options.parse_args().service)
    program = shutil.which("pip-audit", path=str(_ROOT / ".venv" / "bin")) or shutil.which("pip-audit")
    if why is None and program is None:
        why = "pip-audit is not installed"
    if why is not None or program is None:
        print(f"audit: NOT ASKED: {why}; whether known faults are in the locks is not known", file=sys.stderr)
        return _NOT_ASKED
    found = False
    for lock in _LOCKS:
        command = [program, "--strict", "--disable-pip", "--require-hashes", "--requirement", str(_ROOT / lock)]
        found |= subprocess.run(command, check=False).returncode != 0  # noqa: S603  # nosec B603 # of the lines above
    print("audit: see above" if found else f"audit: asked about {len(_LOCKS)} locks, no known fault")
    return int(found)


def _why_not(service: str) -> str | None:
    """Return why the service cannot be asked, None where it tells of the faults that are known."""
    if not service.startswith(("https://", "http://127.0.0.1:")):
        return "the service is not at an https address"
    try:
        with urllib.request.urlopen(f"{service}/{_CONTROL}/json", timeout=_SECONDS) as answer:  # noqa: S310  # nosec B310 # checked above
            told = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError) as error:
        return f"{service} does not answer ({type(error).__name__})"
    known = told.get("vulnerabilities") if isinstance(told, dict) else None
    return None if known else f"{service} knows no fault of {_CONTROL}, which has some"


if __name__ == "__main__":
    sys.exit(main())
