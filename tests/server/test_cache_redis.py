"""A Redis that settings name: opened, refused at the start, and told of in the log."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from cascade.cache.redis import RedisStore
from cascade.errors import ConfigError
from cascade.server.caching import check_cache, open_cache, redis_events
from cascade.server.settings import Settings
from cascade.telemetry.logs import configure_logging
from cascade.telemetry.metrics import Metrics
from cascade.types import BreakerState
from tests.cache.arrange import SECRET
from tests.logs import logging_given_back


def test_a_redis_is_opened_from_what_holds_its_address(tmp_path: Path) -> None:
    """A variable or a file; nothing connects before it is asked."""
    key, address = tmp_path / "key", tmp_path / "address"
    key.write_bytes(SECRET)
    address.write_text("redis://:canary-5f3a@redis.example/0\n")
    for said in ("redis://redis.example", "env:REDIS_URL", f"file:{address}"):
        settings = Settings(cache="redis", cache_redis_url=said, cache_key_file=key)
        variables = {"REDIS_URL": "rediss://redis.example"}
        made = open_cache(settings, variables, Metrics().cache, time.monotonic)
        assert made is not None
        assert isinstance(made.store, RedisStore)
        check_cache(settings, variables)


@pytest.mark.parametrize(
    ("said", "key", "told"),
    [
        ("env:NOT_SET", SECRET, "cache_redis_url: the environment variable NOT_SET holds no address of a Redis"),
        ("env:WRONG", SECRET, "cache_redis_url: the environment variable WRONG holds no address of a Redis"),
        ("file:/no/such/file", SECRET, "cache_redis_url: the file /no/such/file cannot be read: FileNotFoundError"),
        ("redis://redis.example:port", SECRET, "cache_redis_url: this is no address of a Redis"),
        ("redis://redis.example", b"short", "cache_key_file: a key has 16 to 64 bytes"),
        ("redis://redis.example", b"x" * 65, "cache_key_file: a key has 16 to 64 bytes"),
        ("redis://redis.example", None, "cache_key_file: cannot be read: FileNotFoundError"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(tmp_path: Path, said: str, key: bytes | None, told: str) -> None:
    """By `serve` as by `config validate`, without a word of an address or a secret."""
    file = tmp_path / "key"
    if key is not None:
        file.write_bytes(key)
    settings = Settings(cache="redis", cache_redis_url=said, cache_key_file=file)
    variables = {"WRONG": "canary-5f3a"}
    with pytest.raises(ConfigError) as checked:
        check_cache(settings, variables)
    with pytest.raises(ConfigError) as opened:
        open_cache(settings, variables, Metrics().cache, time.monotonic)
    for raised in (checked, opened):
        assert str(raised.value).startswith(told)
        assert "canary" not in str(raised.value)
    check_cache(Settings(cache="off"), {})


def test_an_outage_is_one_line_with_its_first_cause() -> None:
    """However often it is tried again meanwhile; then one at its end. The gauge follows each change."""
    written = io.BytesIO()
    metrics = Metrics()
    with logging_given_back():
        configure_logging("info", written)
        events = redis_events(metrics.cache)
        events.reached("ConnectionError")
        events.breaker(BreakerState.OPEN, "ConnectionError")
        for _ in range(3):
            events.breaker(BreakerState.HALF_OPEN, "slow")
            events.breaker(BreakerState.OPEN, "slow")
        assert metrics.registry.get_sample_value("cascade_cache_breaker_open") == 1
        events.breaker(BreakerState.HALF_OPEN, "slow")
        events.breaker(BreakerState.CLOSED, "slow")
        events.breaker(BreakerState.OPEN, "slow")
        events.reached(None)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [(line["level"], line["event"], line["state"], line["why"]) for line in lines] == [
        ("warning", "score cache", "no_answer", "ConnectionError"),
        ("warning", "score cache", "open", "ConnectionError"),
        ("info", "score cache", "closed", None),
        ("warning", "score cache", "open", "slow"),
        ("info", "score cache", "answers", None),
    ]
