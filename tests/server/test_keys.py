"""API keys: how they are shown, found and written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from cascade.errors import ConfigError
from cascade.server.key_file import parse_keys
from cascade.server.keys import Key, Right, hash_of, presented_key

_CANARY: Final = "kingfisher-7f3a"


def _entry(name: str, key: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_of(key).hex(), **fields}


def _file(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "keys.yaml"
    path.write_text(yaml.safe_dump({"keys": list(entries)}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc "}, "abc"),
        ({"authorization": "abc"}, "abc"),
        ({"x-api-key": "abc"}, "abc"),
        ({"authorization": "", "x-api-key": "abc"}, "abc"),
        ({"authorization": "Bearer abc", "x-api-key": "other"}, "abc"),
        ({"authorization": ""}, None),
        ({"authorization": "Bearer "}, None),
        ({}, None),
    ],
)
def test_a_key_is_read_in_every_form_that_clients_send_it(headers: dict[str, str], key: str | None) -> None:
    """Bearer in any case, bare as LlamaIndex sends it, in its own header; empty as Dify sends it is none."""
    assert presented_key(headers) == key


def test_each_of_several_keys_is_found_and_nothing_like_one(tmp_path: Path) -> None:
    """A key opens what its entry says; a hash is no key, and neither is a part of one."""
    path = _file(
        tmp_path,
        _entry("first", "aaa", tenant="acme", priority=2),
        _entry("second", "bbb", expires="2027-01-02T03:04:05+00:00", rights=["read", "any-tenant"]),
    )
    ring = parse_keys(path)
    assert len(ring) == 2
    assert ring.find("aaa") == Key("first", "acme", 2, None, frozenset({Right.RERANK}))
    assert ring.find("bbb") == Key("second", None, 0, 1798859045.0, frozenset({Right.READ, Right.ANY_TENANT}))
    for wrong in ("aa", "aaaa", "", hash_of("aaa").hex(), "schlüssel", "\udcff"):
        assert ring.find(wrong) is None
    assert (ring.live(1798859044.0), ring.live(1798859045.0)) == (2, 1)


def test_a_day_ends_a_key_at_its_beginning_and_json_is_read_too(tmp_path: Path) -> None:
    """2027-01-02 is that day's first moment, UTC."""
    path = tmp_path / "keys.json"
    path.write_bytes(orjson.dumps({"keys": [_entry("a", "aaa", expires="2027-01-02")]}))
    found = parse_keys(path).find("aaa")
    assert found is not None
    assert found.expires == 1798848000.0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("keys: []", "keys: Tuple should have at least 1 item"),
        ("{}", "keys: Field required"),
        ("- a", "the file must hold one mapping"),
        ("keys: [", "not valid YAML"),
        ({"keys": [_entry("a", "x"), _entry("a", "y")]}, "two keys have the same name"),
        ({"keys": [_entry("a", "x"), _entry("b", "x")]}, "two keys have the same sha256"),
        ({"keys": [{"name": "a", "sha256": _CANARY}]}, "keys.0.sha256: String should match pattern"),
        ({"keys": [{"name": "a", "key": _CANARY}]}, "keys.0.key: Extra inputs are not permitted"),
        ({"keys": [_entry("a", "x", rights=[_CANARY])]}, "keys.0.rights.0: Input should be 'rerank'"),
        ({"keys": [_entry("a", "x", rights=[])]}, "keys.0.rights: "),
        ({"keys": [_entry("a", "x", priority=10)]}, "keys.0.priority: "),
        ({"keys": [_entry("a", "x", tenant="no name")]}, "keys.0.tenant: "),
        ({"keys": [_entry("a", "x", expires="2027-01-02T03:04:05")]}, "keys.0.expires"),
    ],
)
def test_g1_a_bad_file_is_refused_and_nothing_of_it_is_repeated(tmp_path: Path, content: Any, told: str) -> None:
    """The place and the rule are named."""
    path = tmp_path / "keys.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        parse_keys(path)
    assert told in str(refused.value)
    assert _CANARY not in str(refused.value)


def test_a_file_that_is_not_there_or_has_no_end_is_refused(tmp_path: Path) -> None:
    """A device without end is not read on."""
    with pytest.raises(ConfigError, match="cannot be read: FileNotFoundError"):
        parse_keys(tmp_path / "none")
    with pytest.raises(ConfigError, match="more than 1000000 bytes"):
        parse_keys(Path("/dev/zero"))
