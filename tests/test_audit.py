"""The audit of the locks never says that all is well where it could not ask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[1] / "scripts" / "audit.py"
_KNOWN = json.dumps({"dependencies": [{"name": "urllib3", "version": "1.24.1", "vulns": [{"id": "X"}]}]})


def _asked(folder: Path, control: str, locks: int = 0) -> tuple[int, str]:
    """Run the audit with a pip-audit that prints this about the control, and ends with ``locks`` for a lock."""
    program = folder / "pip-audit"
    lines = (
        f"#!{sys.executable}",
        "import sys",
        f"if 'json' in sys.argv: print({control!r})",
        f"else: sys.exit({locks})",
    )
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program.chmod(0o755)
    command = [sys.executable, str(_SCRIPT), "--program", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("control", "why"),
    [
        (
            '{"dependencies": [{"name": "urllib3", "version": "1.24.1", "vulns": []}]}',
            "knows no fault of urllib3==1.24.1",
        ),
        ('{"dependencies": [{"name": "urllib3", "skip_reason": "not found"}]}', "knows no fault"),
        ('{"dependencies": []}', "does not answer"),
        ("[]", "does not answer"),
        ("Traceback", "does not answer"),
        ("", "does not answer"),
    ],
)
def test_a_service_that_tells_nothing_was_not_asked(tmp_path: Path, control: str, why: str) -> None:
    """A mirror of packages answers too, and knows of no faults: that is another exit status, and no success."""
    code, told = _asked(tmp_path, control)
    assert code == 3
    assert told.startswith("audit: NOT ASKED: ")
    assert why in told


def test_without_pip_audit_nothing_was_asked(tmp_path: Path) -> None:
    """It is said as well."""
    command = [sys.executable, str(_SCRIPT), "--program", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "does not run" in done.stderr) == (3, True)


@pytest.mark.parametrize(("locks", "code"), [(0, 0), (1, 1)])
def test_where_it_answers_its_word_on_the_locks_counts(tmp_path: Path, locks: int, code: int) -> None:
    """Found is found, and none found is success."""
    assert _asked(tmp_path, _KNOWN, locks)[0] == code
