"""What settings say of the score cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from cascade.errors import ConfigError
from cascade.server.settings import load_settings

_SECRET: Final = "canary-5f3a"


def _told(flags: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as raised:
        load_settings(flags, environment={})
    return str(raised.value)


def test_a_cache_is_turned_off_in_a_file_by_a_bare_off(tmp_path: Path) -> None:
    """YAML reads that as false, which is what nobody else means by it."""
    file = tmp_path / "settings.yaml"
    file.write_text("cache: off\n")
    assert load_settings({}, file=file, environment={}).cache == "off"
    assert _told({"cache": True}).startswith("settings: cache: ")


def test_a_shared_cache_needs_a_place_and_a_secret() -> None:
    """Replicas of different random keys would share nothing, so a Redis without a file of the key is refused."""
    for given in ({}, {"cache_redis_url": "redis://redis.example"}, {"cache_key_file": "cache.key"}):
        told = _told({"cache": "redis", **given})
        assert told.startswith("settings: cache: redis needs cache_redis_url, and cache_key_file")


@pytest.mark.parametrize(
    ("value", "legal"),
    [
        ("redis://redis.example:6379/3", True),
        ("rediss://redis.example", True),
        ("unix:///run/redis.sock", True),
        ("env:REDIS_URL", True),
        ("file:/run/secrets/redis", True),
        (f"redis://:{_SECRET}@redis.example", False),
        (f"redis://redis.example?password={_SECRET}", False),
        (f"http://{_SECRET}.example", False),
        (f"env:{_SECRET}", False),
        (f"file:{_SECRET}", False),
        (_SECRET, False),
        ("", False),
    ],
)
def test_g1_the_address_of_a_redis_holds_no_credential(value: str, legal: bool) -> None:
    """One that does is named by the variable or the file that holds it; what is refused is not repeated."""
    if legal:
        assert load_settings({"cache_redis_url": value}, environment={}).cache_redis_url == value
    else:
        told = _told({"cache_redis_url": value})
        assert told.startswith("settings: cache_redis_url: ")
        assert _SECRET not in told
