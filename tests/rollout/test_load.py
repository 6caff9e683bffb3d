"""Reading a release from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.policy.release import EmbeddingStage, HttpStage, OnnxStage, policy_digest, release_digest
from cascade.rollout.load import LoadedRelease, default_release_path, load_release, variables_of
from tests.scenario import release_data

_SECRET = "canary-5f3a"


def _write(folder: Path, data: Mapping[str, Any] | str) -> Path:
    """Write a release, as data or as it stands, and return where it is."""
    path = folder / "release.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(dict(data), sort_keys=False), encoding="utf-8")
    return path


def _load(folder: Path, data: Mapping[str, Any] | str, **environment: str) -> LoadedRelease:
    """Load a release with an environment."""
    return load_release(_write(folder, data), environment)


def _told(folder: Path, data: Mapping[str, Any] | str, **environment: str) -> str:
    """Return what is said of a release that is refused, without the path that it begins with."""
    with pytest.raises(ConfigError) as raised:
        _load(folder, data, **environment)
    lead = f"release {folder / 'release.yaml'}: "
    assert str(raised.value).startswith(lead)
    return str(raised.value).removeprefix(lead)


def _with_server(**fields: Any) -> dict[str, Any]:
    """Return a release whose small stage has ``fields``."""
    data = release_data()
    data["stages"]["small"] |= fields
    return data


def test_variables_are_filled_in_wherever_a_string_stands(tmp_path: Path) -> None:
    """A variable may be a whole value or a part of one, several times, at any depth."""
    data = _with_server(url="http://${HOST}:${PORT}/${HOST}", model="${MODEL_1}", auth={"file": "/run/${_T}/token"})
    loaded = _load(tmp_path, data, HOST="h", PORT="80", MODEL_1="org/m", _T="t")
    stage = loaded.release.stages.small
    assert isinstance(stage, HttpStage)
    assert (stage.url, stage.model) == ("http://h:80/h", "org/m")
    assert stage.auth is not None
    assert stage.auth.file == "/run/t/token"


def test_a_value_that_looks_like_a_variable_is_not_filled_in_again(tmp_path: Path) -> None:
    """What a variable holds is taken as it is."""
    loaded = _load(tmp_path, _with_server(model="${OUTER}"), OUTER="${INNER}", INNER="x")
    assert loaded.release.stages.small is not None
    assert loaded.release.stages.small.model == "${INNER}"


def test_an_empty_variable_is_set(tmp_path: Path) -> None:
    """Empty is a value, which the key may then refuse."""
    told = _told(tmp_path, _with_server(model="${EMPTY}"), EMPTY="")
    assert told == "stages.small.tei.model: String should have at least 1 character"


def test_a_missing_variable_is_named_with_its_key(tmp_path: Path) -> None:
    """The operator learns which variable to set, and for what."""
    told = _told(tmp_path, _with_server(url="http://${ABSENT}/"), PRESENT="x")
    assert told == "stages.small.url: the environment variable ABSENT is not set"


def test_a_missing_variable_in_a_list_is_named_too(tmp_path: Path) -> None:
    """Variables are filled in before the model says whether a list may stand there."""
    told = _told(tmp_path, _with_server(auth=["x", {"env": "${ABSENT}"}]))
    assert told == "stages.small.auth.env: the environment variable ABSENT is not set"
    assert _told(tmp_path, _with_server(auth=["${TOKEN}"]), TOKEN=_SECRET).startswith("stages.small.tei.auth: ")


@pytest.mark.parametrize("written", ["${}", "${A-B}", "${A:-b}", "${1A}", "${A", "x${ A }", "${A}${", "${é}"])
def test_what_is_almost_a_variable_is_refused(tmp_path: Path, written: str) -> None:
    """A default, a space or an open brace is not kept as text in silence."""
    told = _told(tmp_path, _with_server(model=written), A="a")
    assert told == "stages.small.model: ${ begins a variable, as in ${NAME}, and a name is all it holds"


@pytest.mark.parametrize("written", ["$A", "$", "a$b{c}", "{A}"])
def test_a_dollar_alone_is_text(tmp_path: Path, written: str) -> None:
    """Only a dollar before a brace begins a variable."""
    loaded = _load(tmp_path, _with_server(model=written), A="a")
    assert loaded.release.stages.small is not None
    assert loaded.release.stages.small.model == written


@pytest.mark.parametrize("key", ["url", "adapter", "score_space", "max_length", "auth"])
def test_a_variables_value_is_never_told(tmp_path: Path, key: str) -> None:
    """An error names the key that the variable filled, and repeats nothing of it."""
    told = _told(tmp_path, _with_server(**{key: "${TOKEN}"}), TOKEN=_SECRET)
    assert key in told
    assert _SECRET not in told


def test_a_number_is_not_made_from_a_variable(tmp_path: Path) -> None:
    """Variables stand for text: behaviour is written in the release itself."""
    assert _told(tmp_path, release_data(depth="${DEPTH}"), DEPTH="50").startswith("depth: ")


def test_variables_are_found_wherever_a_string_stands() -> None:
    """Names come from values at any depth, once each; keys, numbers and bare dollars give none."""
    value = {"a": "${A}${B}", "${K}": [1, None, "x-${C}", {"d": "${A}"}], "e": "$E ${1}", "f": True}
    assert variables_of(value) == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("release: r1\nrelease: r2\n", "line 2: release is given twice"),
        ("release: &name r1\n", "line 1: anchors and aliases are not allowed"),
        ("release: !!str r1\n", "line 1: tags are not allowed"),
        ("release: [\n", "not valid YAML at line 2"),
        ("- release\n", "the file must hold one mapping"),
        ("", "the file must hold one mapping"),
    ],
)
def test_odd_yaml_is_refused_under_the_files_name(tmp_path: Path, text: str, told: str) -> None:
    """The path comes first, then what is wrong and where."""
    assert _told(tmp_path, text) == told


def test_a_file_that_is_not_there_is_refused_under_its_name(tmp_path: Path) -> None:
    """The path is told, and what went wrong with it."""
    path = tmp_path / "absent.yaml"
    with pytest.raises(ConfigError) as raised:
        load_release(path, {})
    assert str(raised.value) == f"release {path}: cannot be read: FileNotFoundError"


def test_a_file_that_is_not_utf8_is_refused_under_its_name(tmp_path: Path) -> None:
    """Bytes of another encoding are not guessed at."""
    path = tmp_path / "release.yaml"
    path.write_bytes(b"release: \xe9\n")
    with pytest.raises(ConfigError) as raised:
        load_release(path, {})
    assert str(raised.value) == f"release {path}: cannot be read: UnicodeDecodeError"


def test_a_number_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    """A digest is of JSON, so a release holds only what JSON can."""
    data = release_data(limits={"max_documents": 2**70})
    assert _told(tmp_path, data) == "only plain YAML values are allowed"


@pytest.mark.parametrize("limits", [{1: 2}, {None: 2}, {True: 2}])
def test_a_key_that_is_no_text_is_refused(tmp_path: Path, limits: dict[Any, int]) -> None:
    """A number as a key is named as what it is."""
    assert _told(tmp_path, release_data(limits=limits)).startswith("limits.")


def test_an_unknown_key_is_refused_under_the_files_name(tmp_path: Path) -> None:
    """What the model refuses is told as it tells it."""
    assert _told(tmp_path, release_data(surprise=1)) == "surprise: Extra inputs are not permitted"


def test_digests_do_not_depend_on_comments_style_or_order(tmp_path: Path) -> None:
    """The same release in another dress has the same digests."""
    data = release_data()
    plain = _load(tmp_path, data)
    dressed = "# a comment\n" + yaml.safe_dump(dict(reversed(data.items())), default_flow_style=True) + "\n# more\n"
    loaded = _load(tmp_path, dressed)
    assert (loaded.digest, loaded.policy_digest) == (plain.digest, plain.policy_digest)
    assert plain.digest == release_digest(data)
    assert plain.policy_digest == policy_digest(data)


def test_the_policy_digest_ignores_the_name(tmp_path: Path) -> None:
    """A release under another name is the same policy."""
    one, other = _load(tmp_path, release_data()), _load(tmp_path, release_data(release="r2"))
    assert one.policy_digest == other.policy_digest
    assert one.digest != other.digest


def test_digests_are_of_variables_unexpanded(tmp_path: Path) -> None:
    """The same release has one digest in every environment, and what is kept of it holds no value."""
    data = _with_server(url="http://${HOST}")
    one, other = _load(tmp_path, data, HOST="one"), _load(tmp_path, data, HOST="other")
    assert one.digest == other.digest == release_digest(data)
    assert one.written == data
    assert one.release != other.release
    assert one.digest != _load(tmp_path, _with_server(url="http://one")).digest


def test_the_default_release_loads_with_no_environment() -> None:
    """The release that ships needs no variable, no server and no key."""
    loaded = load_release(default_release_path(), {})
    assert isinstance(loaded.release.stages.small, EmbeddingStage)
    assert isinstance(loaded.release.stages.large, OnnxStage)
    assert variables_of(loaded.written) == set()
    assert loaded.release.fallback == "original-order"


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "policies").glob("*.yaml")), ids=lambda p: p.name)
def test_every_release_of_the_project_loads(path: Path) -> None:
    """Each file in policies/ is valid once its variables are set."""
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    names = variables_of(written)
    loaded = load_release(path, dict.fromkeys(names, "http://stage.example"))
    assert loaded.written == written


def test_loading_reads_no_environment_but_the_one_given(tmp_path: Path) -> None:
    """A variable of the process is not used where the caller gave an environment without it."""
    name = next(name for name in os.environ if name.isidentifier())
    assert f"{name} is not set" in _told(tmp_path, _with_server(model="${" + name + "}"))
