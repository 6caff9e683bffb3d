"""The options that the frameworks' rerankers share."""

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from cascade.clients.options import KEY_VARIABLE, Options, ScoredOptions


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("url", "localhost:8787"),
        ("url", "ftp://localhost"),
        ("url", "http://"),
        ("url", "http://user:hidden@localhost"),
        ("url", "http://localhost?hidden=1"),
        ("url", "http://localhost#hidden"),
        ("url", "http://localhost:port"),
        ("top_n", 0),
        ("top_n", -1),
        ("top_n", True),
        ("top_n", 1.5),
        ("deadline_ms", -1),
        ("deadline_ms", float("nan")),
        ("priority", -1),
        ("timeout_s", 0),
        ("timeout_s", float("inf")),
        ("on_error", "ignore"),
        ("metadata_key", ""),
        ("channels", {"a channel": "score"}),
        ("channel", "ü"),
        ("unknown", "hidden"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_not_repeated(field: str, given: Any) -> None:
    """An option that cannot be is named in the error; what was given is not."""
    with pytest.raises(ValidationError) as raised:
        ScoredOptions(**{field: given})
    told = str(raised.value)
    assert field in told
    assert "hidden" not in told


def test_a_channel_has_one_score() -> None:
    """The document's own score cannot share a channel with one of its metadata."""
    with pytest.raises(ValidationError, match="is named in channels too"):
        ScoredOptions(channel="bm25", channels={"bm25": "score"})
    with pytest.raises(ValidationError, match="is named in channels too"):
        ScoredOptions(channels={"first_stage": "score"})


@pytest.mark.parametrize("options", [{"deadline_ms": 10_000}, {"deadline_ms": 250, "timeout_s": 0.25}])
def test_the_wait_outlasts_the_deadline(options: dict[str, float]) -> None:
    """An answer that comes at its deadline is waited for."""
    with pytest.raises(ValidationError, match="must be longer than deadline_ms"):
        Options.model_validate(options)
    assert Options(deadline_ms=250, timeout_s=0.251).timeout_s == 0.251


def test_zero_is_a_deadline() -> None:
    """A deadline of nothing is one, and not the absence of one."""
    assert Options(deadline_ms=0).deadline_ms == 0


@pytest.mark.parametrize("given", ["http://host/", "http://host"])
def test_the_address_may_end_in_a_slash(given: str) -> None:
    """The route is put behind the address, whether it ends in a slash or not."""
    assert Options(url=given).url == "http://host"


def test_the_key_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key given, the environment's is sent; an empty variable is none."""
    monkeypatch.setenv(KEY_VARIABLE, "of the environment")
    read = Options()
    assert read.api_key == SecretStr("of the environment")
    assert Options.model_validate_json("{}").api_key == SecretStr("of the environment")
    assert Options(api_key=SecretStr("given")).api_key == SecretStr("given")
    assert Options(api_key=None).api_key is None
    monkeypatch.setenv(KEY_VARIABLE, "")
    assert Options().api_key is None


@pytest.mark.parametrize("key", ["hidden\n", "hidden é"])
def test_a_key_that_no_header_holds_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was read with its line's end is told as such, wherever it came from."""
    monkeypatch.setenv(KEY_VARIABLE, key)
    for given in ({}, {"api_key": SecretStr(key)}):
        with pytest.raises(ValidationError, match="must be printable ASCII") as raised:
            Options(**given)
        assert "hidden" not in str(raised.value)


def test_the_key_is_in_no_dump_and_no_repr() -> None:
    """Saved options hold no key, not even a redacted one that would be sent after loading."""
    options = Options(api_key=SecretStr("hidden"))
    for shown in (repr(options), str(options.model_dump()), options.model_dump_json()):
        assert "hidden" not in shown
        assert "api_key" not in shown


def test_scores_are_found_by_channel() -> None:
    """A channel's score is under its metadata key, None where it is missing; the document's own is beside it."""
    options = ScoredOptions(channel="dense", channels={"bm25": "lexical", "rrf": "fused"})
    assert options.known_scores({"lexical": 3.5, "other": 1}) == {"bm25": 3.5, "rrf": None}
    assert options.all_scores(0.7, {"lexical": 3.5}) == {"bm25": 3.5, "rrf": None, "dense": 0.7}
    assert ScoredOptions(channel=None).all_scores(0.7, {}) == {}
