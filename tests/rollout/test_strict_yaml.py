"""What a YAML file of ours may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.rollout.strict_yaml import read_mapping


def _file(folder: Path, content: str | bytes) -> Path:
    """Write a file and return where it is."""
    path = folder / "file.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: 1", {"a": 1}),
        ("{}", {}),
        ("# all\n---\na: {b: [1, 2.5, true, null, text, 'quoted: text', \"é\"]}\n...\n", None),
        ("a: |\n  two\n  lines\nb: >-\n  one\n  line\n", {"a": "two\nlines\n", "b": "one line"}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: [0, -5, 1_000, 0x1f, 0.5, -1.5e+3, 00.5]", {"a": [0, -5, 1000, 31, 0.5, -1500.0, 0.5]}),
        ("a: {k: 1}\nb: {k: 2}", {"a": {"k": 1}, "b": {"k": 2}}),
        ("a: '*x &y !z'", {"a": "*x &y !z"}),
    ],
)
def test_plain_yaml_is_read_as_it_is(tmp_path: Path, content: str, expected: dict[str, Any] | None) -> None:
    """Mappings, lists, numbers, texts in each style, and the same key in two mappings are legal."""
    whole = {"a": {"b": [1, 2.5, True, None, "text", "quoted: text", "é"]}}
    assert read_mapping(_file(tmp_path, content)) == (whole if expected is None else expected)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: a is given twice"),
        ("a:\n  b: 1\n  b: 1", "line 3: b is given twice"),
        ("l:\n- {c: 1, c: 2}", "line 2: c is given twice"),
        ("a: 1\n'a': 2", "line 2: a is given twice"),
    ],
)
def test_a_key_given_twice_is_refused_with_its_line(tmp_path: Path, content: str, told: str) -> None:
    """At any level and in any style, one of two values would be lost."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, content))
    assert str(raised.value) == told


@pytest.mark.parametrize("number", ["050", "-010", "0_7", "1:30", "1:30.5", "+00"])
def test_a_number_that_is_another_than_it_looks_is_refused_with_its_line(tmp_path: Path, number: str) -> None:
    """YAML reads 050 as 40, and 1:30 as 90; in quotes they are text."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, f"a: 1\nb: [{number}]"))
    assert str(raised.value) == "line 2: write a number in plain digits, without 0 before them or :, and text in quotes"
    assert read_mapping(_file(tmp_path, f"b: '{number}'")) == {"b": number}


@pytest.mark.parametrize("key", [r"\e[31ma", r"a\nb", r"\ud800", r"\u202ea", "a" * 201])
def test_a_key_that_no_log_and_no_terminal_can_take_is_refused_with_its_line(tmp_path: Path, key: str) -> None:
    """Errors name keys; whoever wrote a bundle writes nothing else into them."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, f'a: 1\nb: {{? "{key}" : 1}}'))
    assert str(raised.value) == "line 2: a key that is too long or cannot be printed"
    assert read_mapping(_file(tmp_path, f"{'é' * 200} b: 1"[-200:])) is not None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: &x 1", "line 1: anchors and aliases are not allowed"),
        ("a: 1\nb: &x [secret]\nc: *x", "line 2: anchors and aliases are not allowed"),
        ("a: &x\n  a: *x", "line 1: anchors and aliases are not allowed"),
        ("a: *x", "line 1: anchors and aliases are not allowed"),
        ("a:\n  - !!python/object:os.system secret", "line 2: tags are not allowed"),
        ("a: !!binary c2VjcmV0", "line 1: tags are not allowed"),
        ("a: !!set {secret}", "line 1: tags are not allowed"),
        ("a: !secret secret", "line 1: tags are not allowed"),
        ("!!map {a: 1}", "line 1: tags are not allowed"),
        ("a: !!bool secret", "line 1: tags are not allowed"),
    ],
)
def test_anchors_and_tags_are_refused_with_their_line(tmp_path: Path, content: str, told: str) -> None:
    """A mapping cannot hold itself, lines cannot multiply, and nothing but plain data is made."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, content))
    assert str(raised.value) == told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: [secret", "not valid YAML at line 1"),
        ("a: 1\n b: secret", "not valid YAML at line 2"),
        ("a: 1\n---\nb: secret", "not valid YAML at line 2"),
        ("a: 1\n\tb: secret", "not valid YAML at line 2"),
        ("a: secret\x07", "not valid YAML"),
        ("? [a]\n: secret", "not valid YAML at line 1"),
        ("? {a: 1}\n: secret", "not valid YAML at line 1"),
        ("<<: {a: secret}", "not valid YAML at line 1"),
        ("a: 2026-13-45", "not valid YAML"),
        ("a: " + "9" * 5000, "not valid YAML"),
        ("a: " + "[" * 5000 + "]" * 5000, "line 1: nested more than 64 deep"),
        ("a:\n  " + "- " * 5000, "line 2: nested more than 64 deep"),
        ('{"a":' * 5000, "line 1: nested more than 64 deep"),
        ("a: secret " + "x" * 2_000_000, "has more than 2000000 bytes"),
    ],
)
def test_what_is_no_yaml_is_refused_without_a_value(tmp_path: Path, content: str, told: str) -> None:
    """Broken syntax, two documents, keys that are no texts, dates that are none and endless nesting are one error."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, content))
    assert str(raised.value) == told


@pytest.mark.parametrize("content", ["", "# nothing", "[]", "- a", "text", "5", "null", "1: a", "true: a", "null: a"])
def test_a_file_that_is_no_mapping_of_names_is_refused(tmp_path: Path, content: str) -> None:
    """One mapping with texts as keys is what a file holds."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, content))
    assert str(raised.value) == "the file must hold one mapping"


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Bytes of another encoding are not guessed at."""
    with pytest.raises(ConfigError) as raised:
        read_mapping(_file(tmp_path, "a: é".encode("latin-1")))
    assert str(raised.value) == "cannot be read: UnicodeDecodeError"


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    """A missing file and a folder in its place are told apart."""
    for path, kind in ((tmp_path / "missing.yaml", "FileNotFoundError"), (tmp_path, "IsADirectoryError")):
        with pytest.raises(ConfigError) as raised:
            read_mapping(path)
        assert str(raised.value) == f"cannot be read: {kind}"
