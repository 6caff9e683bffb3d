"""``cascade keys``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cascade.cli import app
from cascade.errors import ConfigError
from cascade.server.key_file import parse_keys
from cascade.server.keys import Right


def test_a_new_key_opens_what_its_entry_says(tmp_path: Path) -> None:
    """The key is on stderr alone, and the entry can be put into the file as it is."""
    made = CliRunner().invoke(app, ["keys", "new", "batch"])
    key = made.stderr.strip()
    assert made.exit_code == 0
    assert len(key) == 43
    assert key not in made.stdout
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n" + made.stdout, encoding="utf-8")
    found = parse_keys(path).find(key)
    assert found is not None
    assert found.name == "batch"
    assert CliRunner().invoke(app, ["keys", "check", str(path)]).stdout == "valid; keys: 1\n"


def test_a_new_key_has_the_rights_that_were_asked_for(tmp_path: Path) -> None:
    """Each once; one that there is not is refused."""
    made = CliRunner().invoke(
        app, ["keys", "new", "ops", *("--right", "read", "--right", "operate", "--right", "read")]
    )
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n" + made.stdout, encoding="utf-8")
    found = parse_keys(path).find(made.stderr.strip())
    assert found is not None
    assert found.rights == {Right.READ, Right.OPERATE}
    assert made.stdout.endswith("    rights: [read, operate]\n")
    assert CliRunner().invoke(app, ["keys", "new", "ops", "--right", "all"]).exit_code == 2


def test_two_new_keys_differ() -> None:
    """Each is drawn anew."""
    assert CliRunner().invoke(app, ["keys", "new", "a"]).stderr != CliRunner().invoke(app, ["keys", "new", "a"]).stderr


def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    """The error names the file, the place and the rule."""
    path = tmp_path / "keys.yaml"
    path.write_text("keys: []", encoding="utf-8")
    failed = CliRunner().invoke(app, ["keys", "check", str(path)])
    assert isinstance(failed.exception, ConfigError)
    assert str(failed.exception).startswith(f"{path}: keys: ")


@pytest.mark.parametrize("name", ["5", "no", "null", "1e3", "2027-01-31", ".", "~"])
def test_a_name_that_yaml_reads_as_no_text_is_quoted_or_refused(tmp_path: Path, name: str) -> None:
    """What is printed can always be read."""
    made = CliRunner().invoke(app, ["keys", "new", name])
    if name == "~":
        assert isinstance(made.exception, ConfigError)
        return
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n" + made.stdout, encoding="utf-8")
    found = parse_keys(path).find(made.stderr.strip())
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", ["", "a b", "a: b", "a\n", "x" * 65, "größe", '"'])
def test_a_name_that_the_file_would_refuse_is_refused(name: str) -> None:
    """No key is made then."""
    refused = CliRunner().invoke(app, ["keys", "new", name])
    assert isinstance(refused.exception, ConfigError)
    assert str(refused.exception) == "the name of a key: 1 to 64 letters, digits, '.', '_' and '-'"
    assert refused.stdout == refused.stderr == ""
