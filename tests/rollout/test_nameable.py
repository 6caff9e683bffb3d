"""What a release may name of its process: variables and files of secrets that settings let it, and none of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.rollout.bundle import load_bundle
from cascade.rollout.load import load_release, offline
from cascade.rollout.nameable import NameableEnvironment
from cascade.rollout.verify import verify
from cascade.server.building import open_service
from cascade.server.reading import nameable, read_bundle
from cascade.server.settings import Settings, load_settings
from tests.rollout.arrange import stage_data

_VARIABLES = {
    "CASCADE_URL": "http://a.test",
    "LARGE_KEY": "k1",
    "AWS_SECRET_ACCESS_KEY": "canary-5d1",
    "CASCADE__PORT": "1",
}


def _release(folder: Path, **stage: Any) -> Path:
    data = {
        "release": "r1",
        "stages": {"small": stage_data("small", **stage)},
        "depth": 5,
        "escalation": "none",
        "budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10},
    }
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def _loaded(path: Path, settings: Settings | None = None, variables: Mapping[str, str] = _VARIABLES) -> str:
    return load_release(path, nameable(settings or Settings(), variables)).release.release


@pytest.mark.parametrize(
    "stage", [{"url": "${CASCADE_URL}"}, {"auth": {"env": "LARGE_KEY"}}, {"auth": {"file": "/run/secrets/x"}}]
)
def test_what_the_documentation_names_may_be_named(tmp_path: Path, stage: dict[str, Any]) -> None:
    """As releases do that are there, without a setting."""
    assert _loaded(_release(tmp_path, **stage)) == "r1"


@pytest.mark.parametrize(
    ("stage", "where"),
    [
        ({"url": "http://thief.test/${AWS_SECRET_ACCESS_KEY}"}, "stages.small.url"),
        ({"model": "${AWS_SECRET_ACCESS_KEY}"}, "stages.small.model"),
        ({"auth": {"env": "AWS_SECRET_ACCESS_KEY"}}, "stages.small"),
    ],
)
def test_no_other_variable_reaches_a_server(tmp_path: Path, stage: dict[str, Any], where: str) -> None:
    """Neither in a string nor as a token; the error says which setting would let it, and nothing of the value."""
    path = _release(tmp_path, **stage)
    with pytest.raises(ConfigError) as refused:
        _loaded(path)
    told = str(refused.value)
    assert told.startswith(
        f"release {path}: {where}: the environment variable AWS_SECRET_ACCESS_KEY is not among those"
    )
    assert told.endswith(
        "a value replaces the default, so keep what is there and add AWS_SECRET_ACCESS_KEY to the setting release_variables, which has CASCADE_*, SMALL_KEY, LARGE_KEY"
    )
    assert "canary" not in told
    assert _loaded(path, Settings(release_variables=("AWS_*",))) == "r1"


@pytest.mark.parametrize(
    ("file", "allowed"),
    [
        ("/run/secrets/large", True),
        ("/run/secrets/cascade/large/token", True),
        ("/run/secrets/kubernetes.io/serviceaccount/token", False),
        ("/run/secrets/cascade/../kubernetes.io/serviceaccount/token", False),
        ("/etc/shadow", False),
        ("secrets/large", False),
    ],
)
@pytest.mark.parametrize("field", ["auth", "key"])
def test_no_other_file_is_read_as_a_secret(tmp_path: Path, file: str, allowed: bool, field: str) -> None:
    """A token that an orchestrator puts below the same folder for the pod itself is none of a release's."""
    shown = {"certificate": "/run/secrets/c.pem", "key": file}
    path = _release(tmp_path, **({"auth": {"file": file}} if field == "auth" else {"client_certificate": shown}))
    if allowed:
        assert _loaded(path) == "r1"
        return
    with pytest.raises(
        ConfigError, match=r"replaces the default, so keep .* to the setting release_files, which has /run/secrets/"
    ):
        _loaded(path)


def test_what_settings_name_is_never_a_releases(tmp_path: Path) -> None:
    """The sidecar's own secrets lie in the same folders, and its settings in the same environment."""
    secret = tmp_path / "cache-key"
    secret.write_text("sixteen bytes it is", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(secret)
    settings = Settings(
        cache_key_file=secret,
        cache_redis_url="env:CASCADE_REDIS",
        release_files=(f"{tmp_path}/*",),
    )
    variables = {**_VARIABLES, "CASCADE_REDIS": "redis://:canary@r.test"}
    for stage, told in (
        ({"auth": {"file": str(secret)}}, "belongs to settings"),
        ({"auth": {"file": str(link)}}, "belongs to settings"),
        ({"model": "${CASCADE_REDIS}"}, "belongs to settings"),
        ({"model": "${CASCADE__PORT}"}, "belongs to settings"),
    ):
        with pytest.raises(ConfigError, match=told):
            _loaded(_release(tmp_path, **stage), settings, variables)


async def test_a_start_refuses_such_a_release(tmp_path: Path) -> None:
    """Before a stage is built, and so before anything leaves; reading it for the command line does the same."""
    path = _release(tmp_path, auth={"env": "AWS_SECRET_ACCESS_KEY"})
    with pytest.raises(ConfigError, match="release_variables"):
        async with open_service(Settings(release=path), _VARIABLES):
            pytest.fail("a release read what it may not")
    with pytest.raises(ConfigError, match="release_variables"):
        read_bundle(Settings(release=path), _VARIABLES)


def test_an_activation_refuses_such_a_release(tmp_path: Path) -> None:
    """Verifying looks at it without its variables; loading it does not."""
    path = _release(tmp_path, auth={"env": "AWS_SECRET_ACCESS_KEY"}, url="http://${AWS_SECRET_ACCESS_KEY}.test")
    seen = nameable(Settings(), _VARIABLES)
    assert "canary" not in repr(verify(path, seen))
    with pytest.raises(ConfigError, match="release_variables"):
        load_bundle(path, seen)


def test_an_environment_shows_what_may_be_named_and_nothing_else() -> None:
    """Whoever goes through it, asks for all of it, or looks at a release without its servers."""
    seen = NameableEnvironment(_VARIABLES)
    assert dict(seen) == {"CASCADE_URL": "http://a.test", "LARGE_KEY": "k1"}
    assert len(seen) == 2
    assert "AWS_SECRET_ACCESS_KEY" not in seen
    assert offline(seen)["AWS_SECRET_ACCESS_KEY"] == "http://unset.invalid"
    assert seen.get("CASCADE_OTHER") is None


def test_lists_are_read_from_a_variable_with_commas() -> None:
    """As an environment has them; a list of none lets a release name nothing."""
    told = {"CASCADE__RELEASE_VARIABLES": "A_*, B", "CASCADE__RELEASE_FILES": ""}
    settings = load_settings({}, environment=told)
    assert (settings.release_variables, settings.release_files) == (("A_*", "B"), ())
    with pytest.raises(ConfigError, match=r"which has none$"):
        NameableEnvironment(_VARIABLES, variables=())["LARGE_KEY"]


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("release_variables", ["A*B"], "release_variables: must be names of variables"),
        ("release_variables", ["*"], "release_variables: must be names of variables"),
        ("release_files", ["secrets/*"], "release_files: must be absolute paths"),
        ("release_files", ["/a/*/b"], "release_files: must be absolute paths"),
        ("release_files", ["/a/../b"], "release_files: must be absolute paths"),
    ],
)
def test_entries_that_mean_nothing_are_refused(setting: str, value: list[str], told: str) -> None:
    """Neither is there one for all variables: they would have to be named."""
    with pytest.raises(ConfigError, match=told):
        load_settings({setting: value}, environment={})
