"""What a release may say, and what is told of one that may not be used."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.policy.release import (
    Auth,
    EmbeddingStage,
    HttpStage,
    OnePair,
    OnnxStage,
    Pooling,
    Release,
    TeiStage,
    TokenBudget,
    VllmStage,
    Weights,
    parse_release,
    policy_digest,
    release_digest,
)
from cascade.types import ScoreSpace
from tests.scenario import release_data

_SECRET: Final = "canary-5f3a"
_WEIGHTS: Final = {"package": "p", "folder": "f", "sha256": {"model.onnx": "0" * 64}}
_STAGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "tei": {
        "adapter": "tei",
        "url": "http://stage.example",
        "model": "m",
        "engine": "tei/1.9",
        "auth": {"env": "TOKEN"},
    },
    "vllm": {"adapter": "vllm", "url": "https://stage.example/base", "model": "m", "engine": "vllm/0.12"},
    "onnx": {
        "adapter": "onnx",
        "model": "m",
        "engine": "onnxruntime",
        "weights": _WEIGHTS,
        "batching": {"mode": "token-budget", "max_total_tokens": 64},
    },
    "onnx-embedding": {"adapter": "onnx-embedding", "model": "m", "engine": "onnxruntime", "weights": _WEIGHTS},
}
_PLACES: Final = {
    "": (),
    "stages": ("stages",),
    "stages.small.tei": ("stages", "small"),
    "stages.small.tei.auth": ("stages", "small", "auth"),
    "stages.large.onnx": ("stages", "large"),
    "stages.large.onnx.weights": ("stages", "large", "weights"),
    "stages.large.onnx.batching.token-budget": ("stages", "large", "batching"),
    "depth.fixed": ("depth",),
    "escalation.static": ("escalation",),
    "budgets": ("budgets",),
    "limits": ("limits",),
}
"""Every level of a release as errors name it, and where it is in the data of :func:`_full`."""


def _full() -> dict[str, Any]:
    """Return a release that has something at every level."""
    return copy.deepcopy(
        release_data(
            stages={"small": dict(_STAGES["tei"]), "large": dict(_STAGES["onnx"])},
            depth={"kind": "fixed", "depth": 50},
            limits={"max_candidates": 200, "max_documents": 2048},
            fallback="original-order",
        )
    )


def _with(path: str, value: Any) -> dict[str, Any]:
    """Return the full release with ``value`` at a dotted path."""
    data = _full()
    *parents, last = path.split(".")
    at = data
    for key in parents:
        at = at[key]
    at[last] = value
    return data


def _stage(adapter: str, **changes: Any) -> Any:
    """Return the parsed small stage of ``adapter`` with fields changed."""
    data = release_data(stages={"small": {**_STAGES[adapter], **changes}}, escalation="none")
    return parse_release(data).stages.small


def _told(data: Mapping[str, Any]) -> str:
    """Return what is said of a release that is refused."""
    with pytest.raises(ConfigError) as raised:
        parse_release(data)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    return str(raised.value)


def test_the_full_release_is_valid() -> None:
    """What the tests below break is whole to begin with."""
    release = parse_release(_full())
    assert isinstance(release.stages.small, TeiStage)
    assert isinstance(release.stages.large, OnnxStage)


@pytest.mark.parametrize("place", _PLACES)
def test_inv10_an_unknown_key_is_refused_by_name_at_each_level(place: str) -> None:
    """A key that the level does not know is an error that names level and key, and not the value."""
    data = _full()
    at = data
    for key in _PLACES[place]:
        at = at[key]
    at["surprise"] = _SECRET
    name = f"{place}.surprise".lstrip(".")
    assert _told(data) == f"{name}: Extra inputs are not permitted"


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("depth.depth", 0, None),
        ("escalation.top_m", 0, None),
        ("limits.max_candidates", 1, None),
        ("limits.max_documents", 1, None),
        ("stages.small.max_length", 8, 131072),
        ("stages.small.chunk_texts", 1, None),
        ("stages.small.chunk_bytes", 1024, None),
        ("stages.small.chunk_tokens", 16, None),
        ("stages.small.max_in_flight_texts", 1, None),
        ("stages.small.connect_ms", 1, None),
        ("stages.large.batching.max_total_tokens", 16, None),
        ("stages.large.batching.max_pairs", 1, 1024),
        ("stages.large.cached_token_bytes", 0, None),
    ],
)
def test_whole_numbers_have_bounds(path: str, least: int, most: int | None) -> None:
    """The least and the greatest value are legal, the next one beyond is not, and no other type is."""
    for legal in (least, 1_000_000 if most is None else most):
        kept: Any = parse_release(_with(path, legal)).model_dump()
        for key in path.split("."):
            kept = kept[key]
        assert kept == legal
    for illegal in (least - 1, *([most + 1] if most is not None else []), str(least + 5), least + 5.5, True):
        assert path.rpartition(".")[2] in _told(_with(path, illegal))


@pytest.mark.parametrize(
    ("path", "legal", "illegal"),
    [
        ("budgets.total_ms", (10.5, 600_000), (0, -1, 600_000.1)),
        ("budgets.small_ms", (0.1, 1e9), (0, -1)),
        ("budgets.large_ms", (0.1, 1e9), (0, -1)),
        ("budgets.reserve_ms", (0, 99.9), (-0.1,)),
    ],
)
def test_milliseconds_have_bounds(path: str, legal: tuple[float, ...], illegal: tuple[float, ...]) -> None:
    """Milliseconds may be fractions within their bounds; what is no finite number is refused."""
    for value in legal:
        assert getattr(parse_release(_with(path, value)).budgets, path.partition(".")[2]) == value
    for wrong in (*illegal, "50", None, True, float("nan"), float("inf"), float("-inf")):
        assert f"{path}: " in _told(_with(path, wrong))


@pytest.mark.parametrize("reserve_ms", [100, 100.5])
def test_the_reserve_must_be_below_the_whole(reserve_ms: float) -> None:
    """A reserve that takes all the time is refused."""
    assert _told(_with("budgets.reserve_ms", reserve_ms)) == "budgets: reserve_ms must be below total_ms"


@pytest.mark.parametrize(
    "path", ["release", "stages", "depth", "escalation", "budgets", "stages.small.url", "stages.small.model"]
)
def test_what_has_no_default_must_be_there(path: str) -> None:
    """A missing key is named."""
    data = _full()
    *parents, last = path.split(".")
    at = data
    for key in parents:
        at = at[key]
    del at[last]
    assert f"{last}: Field required" in _told(data)


@pytest.mark.parametrize("name", ["", "-x", ".x", "a b", "a/b", "é", "a\n", "x" * 65, 1])
def test_a_release_name_that_is_no_plain_name_is_refused(name: object) -> None:
    """A name goes into headers, metrics and file names: letters, digits, dot, dash, underscore, 64 at most."""
    assert _told(_with("release", name)).startswith("release: ")


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 64])
def test_a_plain_release_name_is_legal(name: str) -> None:
    """The longest and the shortest name are legal."""
    assert parse_release(_with("release", name)).release == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "stage.example",
        "//stage.example",
        "ftp://stage.example",
        "unix:///run/stage.sock",
        "http://",
        "http:///path",
        "http://:80",
        f"http://{_SECRET}:port",
        f"http://{_SECRET}:99999",
        "http://stage.example:0",
        f"http://[{_SECRET}]/",
        f"http://[::1/{_SECRET}",
        f"http://u:{_SECRET}\u2100@stage.example",
        f" http://{_SECRET}",
        f"http://{_SECRET}\n",
        f"http://{_SECRET}/a b",
        f"http://{_SECRET}/\x00",
        5,
        None,
        [_SECRET],
    ],
)
def test_an_address_that_is_not_absolute_http_is_refused(url: object) -> None:
    """Scheme, host and port must be whole; the error names the key and repeats nothing of the address."""
    told = _told(_with("stages.small.url", url))
    assert "stages.small.tei.url: " in told
    assert _SECRET not in told


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{_SECRET}@stage.example",
        f"http://{_SECRET}@stage.example",
        f"http://:{_SECRET}@stage.example",
        "http://@stage.example",
        f"http://stage.example?key={_SECRET}",
        "http://stage.example?",
        f"http://stage.example/#{_SECRET}",
        "http://stage.example/#",
    ],
)
def test_an_address_with_a_credential_or_a_query_is_refused(url: str) -> None:
    """A token has a place of its own; the error says so without repeating it."""
    told = _told(_with("stages.small.url", url))
    rule = "no credentials, query or fragment belong in the address; use auth for a token"
    assert told == f"stages.small.tei.url: {rule}"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://stage.example", "http://stage.example"),
        ("https://stage.example:8443/", "https://stage.example:8443"),
        ("http://10.0.0.1:80/base//", "http://10.0.0.1:80/base"),
        ("http://[::1]:8080/base", "http://[::1]:8080/base"),
    ],
)
def test_an_absolute_address_is_kept_without_a_slash_at_its_end(url: str, kept: str) -> None:
    """Paths are appended to the address later."""
    assert _stage("tei", url=url).url == kept


@pytest.mark.parametrize(
    ("adapter", "kind"),
    [("tei", TeiStage), ("vllm", VllmStage), ("onnx", OnnxStage), ("onnx-embedding", EmbeddingStage)],
)
def test_the_adapter_tells_which_stage_it_is(adapter: str, kind: type) -> None:
    """Each adapter has a model of its own."""
    assert type(_stage(adapter)) is kind


@pytest.mark.parametrize("adapter", [_SECRET, "", "TEI", None, 5])
def test_an_unknown_adapter_is_refused_without_repeating_it(adapter: object) -> None:
    """The error lists what is legal."""
    told = _told(_with("stages.small.adapter", adapter))
    assert told == (
        "stages.small: 'adapter' must be one of 'tei', 'vllm', 'infinity', 'llamacpp', 'sglang', 'nim', "
        "'cohere', 'jina', 'voyage', 'mixedbread', 'chat', 'onnx', 'onnx-embedding'"
    )


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (
            "escalation",
            {"kind": _SECRET},
            "escalation: 'kind' must be one of 'none', 'static', 'static-fused', 'calibrated'",
        ),
        (
            "stages.large.batching",
            {"mode": _SECRET},
            "stages.large.onnx.batching: 'mode' must be one of 'one-pair', 'token-budget'",
        ),
    ],
)
def test_an_unknown_kind_is_refused_without_repeating_it(path: str, value: object, rule: str) -> None:
    """The error lists what is legal."""
    assert _told(_with(path, value)) == rule


def _leaves(data: Any, path: str = "") -> list[str]:
    """Return the dotted path of every key."""
    if not isinstance(data, dict):
        return []
    here = [f"{path}.{key}".lstrip(".") for key in data if "." not in key]
    return here + [leaf for key, value in data.items() for leaf in _leaves(value, f"{path}.{key}".lstrip("."))]


@pytest.mark.parametrize("path", sorted(_leaves(_full())))
@pytest.mark.parametrize("value", [[_SECRET], {_SECRET: _SECRET}, {"kind": _SECRET}, f"{_SECRET} "])
def test_a_wrong_value_is_never_repeated(path: str, value: Any) -> None:
    """Whatever stands at a key, an error of it names the key or its level and tells no value."""
    try:
        parse_release(_with(path, value))
    except ConfigError as error:
        told = str(error).replace(f".{_SECRET}", "")  # an unknown key is named
        assert _SECRET not in told
        assert path.partition(".")[0] in told
    else:
        assert isinstance(value, str)
        assert path.rpartition(".")[2] in {"model", "engine", "env", "package", "folder"}


def test_every_fault_of_a_release_is_told_at_once() -> None:
    """An operator mends all of them in one go."""
    data = _with("budgets.total_ms", 0) | {"depth": -1, "surprise": 1}
    told = _told(data)
    assert [part.partition(":")[0] for part in told.split("; ")] == [
        "depth.fixed.depth",
        "budgets.total_ms",
        "surprise",
    ]


@pytest.mark.parametrize("depth", [0, 7, 5000])
def test_a_depth_may_be_a_number_or_a_mapping(depth: int) -> None:
    """A bare integer means the fixed depth; zero is a depth."""
    for written in (depth, {"depth": depth}, {"kind": "fixed", "depth": depth}):
        assert parse_release(_with("depth", written)).depth.model_dump() == {"kind": "fixed", "depth": depth}


@pytest.mark.parametrize("depth", [-1, 1.0, "50", True, None, [], {}, {"kind": "deep"}, {"kind": "fixed"}])
def test_what_is_no_depth_is_refused(depth: object) -> None:
    """Fractions, texts, booleans and unknown kinds are errors."""
    assert "depth" in _told(_with("depth", depth))


def test_escalation_none_is_a_word() -> None:
    """A release without a large stage says none, as a word or as a kind."""
    for written in ("none", {"kind": "none"}):
        release = parse_release(release_data(stages={"small": dict(_STAGES["tei"])}, escalation=written))
        assert release.escalation.kind == "none"


@pytest.mark.parametrize("escalation", ["static", "", None, 5, [], {}, {"kind": "static"}, {"top_m": 3}])
def test_what_is_no_escalation_is_refused(escalation: object) -> None:
    """A rule has a kind and all that its kind needs."""
    assert "escalation" in _told(_with("escalation", escalation))


def test_escalation_needs_a_large_stage() -> None:
    """A rule without the stage that it sends to is refused."""
    told = _told(release_data(stages={"small": dict(_STAGES["tei"])}))
    assert told == "release: escalation needs a large stage; without one it is none"


def test_a_large_stage_needs_escalation() -> None:
    """A stage that nothing would ever be sent to is refused."""
    told = _told(release_data(escalation="none"))
    assert told == "release: a large stage that nothing escalates to; leave it out"


@pytest.mark.parametrize("stages", [{}, {"small": None}, {"small": None, "large": None}])
def test_a_release_may_have_no_stage(stages: dict[str, Any]) -> None:
    """First-stage order is a behaviour too."""
    release = parse_release(release_data(stages=stages, escalation="none"))
    assert (release.stages.small, release.stages.large) == (None, None)


def test_defaults_are_those_written_in_the_model() -> None:
    """A release that says only what it must has these limits, this fallback and these fields of a stage."""
    release = parse_release(release_data())
    assert (release.limits.max_candidates, release.limits.max_documents) == (200, 2048)
    assert release.fallback == "original-order"
    stage = release.stages.small
    assert isinstance(stage, HttpStage)
    assert (stage.revision, stage.quantization, stage.dtype) == (None, "none", "float32")
    assert (stage.serializer, stage.tokenizer_revision) == ("passthrough@1", None)
    assert (stage.max_length, stage.score_space) == (512, ScoreSpace.LOGIT)
    assert (stage.auth, stage.ca_bundle, stage.chunk_texts) == (None, None, None)
    assert (stage.chunk_bytes, stage.chunk_tokens) == (1_000_000, 16_384)
    assert (stage.max_in_flight_texts, stage.connect_ms) == (1024, 1000)


@pytest.mark.parametrize("fallback", ["original-order", "error"])
def test_the_fallback_is_one_of_two(fallback: str) -> None:
    """A release may ask for an error in place of a degraded answer."""
    assert parse_release(_with("fallback", fallback)).fallback == fallback


@pytest.mark.parametrize("fallback", ["none", "", None, True])
def test_another_fallback_is_refused(fallback: object) -> None:
    """The key is named."""
    assert _told(_with("fallback", fallback)).startswith("fallback: ")


@pytest.mark.parametrize("space", ["logit", "probability", "cosine"])
def test_e5_a_score_space_is_declared(space: str) -> None:
    """Each space can be declared for a stage behind HTTP."""
    assert _stage("tei", score_space=space).score_space is ScoreSpace(space)


@pytest.mark.parametrize("space", ["Logit", "", None, 0, _SECRET])
def test_e5_another_score_space_is_refused(space: object) -> None:
    """A space that nobody knows is an error that does not repeat it."""
    told = _told(_with("stages.small.score_space", space))
    assert told.startswith("stages.small.tei.score_space: ")
    assert _SECRET not in told


def test_an_embedding_stage_scores_cosines() -> None:
    """A bi-encoder is in cosine space, said or not."""
    assert _stage("onnx-embedding").score_space is ScoreSpace.COSINE
    assert _stage("onnx-embedding", score_space="cosine").score_space is ScoreSpace.COSINE


@pytest.mark.parametrize("space", ["logit", "probability"])
def test_an_embedding_stage_in_another_space_is_refused(space: str) -> None:
    """A bi-encoder that claims another space would be mapped wrongly."""
    data = release_data(stages={"small": {**_STAGES["onnx-embedding"], "score_space": space}}, escalation="none")
    assert _told(data) == "stages.small.onnx-embedding.score_space: a bi-encoder scores cosines"


def test_an_embedding_stage_may_keep_no_vectors() -> None:
    """Zero cached vectors is a number; below it is not."""
    assert _stage("onnx-embedding", cached_vectors=0).cached_vectors == 0
    assert _stage("onnx-embedding").cached_vectors == 50_000
    data = release_data(stages={"small": {**_STAGES["onnx-embedding"], "cached_vectors": -1}}, escalation="none")
    assert "cached_vectors: " in _told(data)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooling_is_one_of_two(pooling: str) -> None:
    """Both ways of pooling can be declared, and the first token is the default."""
    assert _stage("onnx-embedding", pooling=pooling).pooling is Pooling(pooling)
    assert _stage("onnx-embedding").pooling is Pooling.CLS


def test_another_pooling_is_refused() -> None:
    """The key is named."""
    data = release_data(stages={"small": {**_STAGES["onnx-embedding"], "pooling": "max"}}, escalation="none")
    assert "pooling: " in _told(data)


def test_batching_is_one_pair_unless_said_otherwise() -> None:
    """The exact mode is the default; a token budget has bounds and no wait where none are given."""
    assert _stage("onnx", batching={"mode": "one-pair"}).batching == OnePair(mode="one-pair")
    assert OnnxStage.model_validate({k: v for k, v in _STAGES["onnx"].items() if k != "batching"}).batching == OnePair(
        mode="one-pair"
    )
    assert _stage("onnx").batching == TokenBudget(mode="token-budget", max_total_tokens=64)
    assert _stage("onnx", batching={"mode": "token-budget"}).batching == TokenBudget(
        mode="token-budget", max_total_tokens=512, max_pairs=32, max_wait_ms=0
    )


@pytest.mark.parametrize(
    ("place", "name", "legal", "illegal"),
    [
        ("batching", "max_wait_ms", (0, 0.5, 8), (-0.1, 8.1)),
        ("windows", "most", (2, 64), (1, 65, 2.5)),
        ("windows", "overlap_tokens", (0, 4096), (-1, 4097)),
    ],
)
def test_batches_and_windows_have_bounds(
    place: str, name: str, legal: tuple[float, ...], illegal: tuple[float, ...]
) -> None:
    """The least and the greatest value are legal, zero where it says something, and the next beyond is not."""
    whole = dict(_STAGES["onnx"]["batching"]) if place == "batching" else {}
    for value in legal:
        assert _stage("onnx", **{place: {**whole, name: value}}).model_dump()[place][name] == value
    for value in illegal:
        assert name in _told(_with("stages.large", {**_STAGES["onnx"], place: {**whole, name: value}}))


@pytest.mark.parametrize(
    ("space", "activation", "rule"),
    [
        ("logit", "sigmoid", "activation: a sigmoid gives probabilities, and score_space says logit"),
        ("cosine", "none", "score_space: a cross-encoder scores logits or probabilities"),
        ("cosine", "sigmoid", "score_space: a cross-encoder scores logits or probabilities"),
    ],
)
def test_an_activation_agrees_with_the_score_space(space: str, activation: str, rule: str) -> None:
    """What is applied to a cross-encoder's output says what its scores are."""
    stage = {**_STAGES["onnx"], "score_space": space, "activation": activation}
    assert _told(_with("stages.large", stage)) == f"stages.large.onnx: {rule}"


@pytest.mark.parametrize(
    ("space", "activation"), [("logit", "none"), ("probability", "sigmoid"), ("probability", "none")]
)
def test_a_model_may_score_probabilities_by_itself(space: str, activation: str) -> None:
    """Without an activation both spaces may be a model's own; that is held against its output at load."""
    stage = _stage("onnx", score_space=space, activation=activation)
    assert isinstance(stage, OnnxStage)
    assert (stage.score_space, stage.activation) == (space, activation)


@pytest.mark.parametrize("auth", [{}, {"env": "A", "file": "/b"}, {"env": None, "file": None}])
def test_auth_names_one_source(auth: dict[str, Any]) -> None:
    """A token comes from a variable or from a file, not from both or neither."""
    told = _told(_with("stages.small.auth", auth))
    assert told == "stages.small.tei.auth: name exactly one of env and file"


def test_auth_may_name_either_source() -> None:
    """Each source alone is legal."""
    assert _stage("tei", auth={"env": "TOKEN"}).auth == Auth(env="TOKEN")
    assert _stage("tei", auth={"file": "/run/token"}).auth == Auth(file="/run/token")


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        ({}, "name a folder (inside a package or not) or a hub model"),
        ({"folder": "f", "hub": "h"}, "name a folder (inside a package or not) or a hub model"),
        ({"package": "p"}, "name a folder (inside a package or not) or a hub model"),
        ({"hub": "h", "package": "p"}, "a hub model lies in no package"),
        ({"folder": "f", "revision": "r"}, "a revision belongs to a hub model"),
    ],
)
def test_weights_are_in_one_place(weights: dict[str, Any], rule: str) -> None:
    """What contradicts itself is refused with the rule that it breaks."""
    assert _told(_with("stages.large.weights", weights)) == f"stages.large.onnx.weights: {rule}"


@pytest.mark.parametrize(
    "weights", [{"folder": "f"}, {"folder": "f", "package": "p"}, {"hub": "h"}, {"hub": "h", "revision": "r"}]
)
def test_weights_may_be_in_each_place(weights: dict[str, Any]) -> None:
    """A folder, a folder in a package, and a hub model with or without a revision are legal."""
    assert _stage("onnx", weights=weights).weights == Weights(**weights)


@pytest.mark.parametrize("checksum", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, f"{'0' * 64}\n", 5])
def test_a_checksum_is_64_hex_digits(checksum: object) -> None:
    """What is no SHA-256 in lower case is refused under the file's name."""
    told = _told(_with("stages.large.weights", {"folder": "f", "sha256": {"model.onnx": checksum}}))
    assert told.startswith("stages.large.onnx.weights.sha256.model.onnx: ")


def test_a_release_is_frozen() -> None:
    """What was checked cannot be changed afterwards."""
    release = parse_release(_full())
    with pytest.raises(ValueError, match="frozen"):
        release.fallback = "error"  # type: ignore[misc]


def test_a_release_is_the_same_after_dumping_and_parsing() -> None:
    """The JSON form of a release says all of it."""
    release = parse_release(_full())
    assert Release.model_validate_json(release.model_dump_json(), strict=False) == release


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _reversed(value: Any) -> Any:
    """Return the same data with the keys of every mapping in the opposite order."""
    match value:
        case dict():
            return {key: _reversed(value[key]) for key in reversed(value)}
        case list():
            return [_reversed(item) for item in value]
        case _:
            return value


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=4))
def test_digests_do_not_depend_on_the_order_of_keys(data: dict[str, Any]) -> None:
    """The same release written in another order has the same digests, at every level."""
    assert release_digest(_reversed(data)) == release_digest(data)
    assert policy_digest(_reversed(data)) == policy_digest(data)


@pytest.mark.parametrize("path", sorted(_leaves(_full())))
def test_the_release_digest_depends_on_every_key(path: str) -> None:
    """Changing anything makes another release; changing anything but its name makes another policy."""
    changed = _with(path, "changed")
    assert release_digest(changed) != release_digest(_full())
    assert (policy_digest(changed) == policy_digest(_full())) == (path == "release")


def test_the_policy_digest_ignores_name_and_evidence() -> None:
    """What a release does is the same under another name and with other evidence."""
    renamed = _full() | {"release": "r2", "evidence": {"report": "sha256:0"}}
    assert policy_digest(renamed) == policy_digest(_full())
    assert release_digest(renamed) != release_digest(_full())


def test_digests_are_those_of_canonical_json() -> None:
    """A digest can be made again by anyone with the JSON, its keys sorted, and SHA-256."""
    digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert policy_digest({"release": "r1"}) == release_digest({}) == digest
    digest = "sha256:f8f17faab95c024891d173fa43442b0e52007736a1f36715ac721ab22deeefc5"
    assert release_digest({"b": [1, "é"], "a": None}) == digest
