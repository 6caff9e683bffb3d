"""The compose file starts the image as it is meant to run, before the servers that its release asks."""

from __future__ import annotations

from typing import Any, Final

from cascade.policy.release import Release
from cascade.rollout.load import load_release
from cascade.server.settings import Settings, load_settings
from tests.deploy.templates import DEPLOY, documents

_RELEASE: Final = "compose-release.yaml"


def _composed() -> dict[str, Any]:
    return documents("compose.yaml")[0]


def _sidecar() -> dict[str, Any]:
    service: dict[str, Any] = _composed()["services"]["cascade"]
    return service


def _release() -> Release:
    """Read the release with the variables that the compose file gives."""
    return load_release(DEPLOY / _RELEASE, _sidecar()["environment"]).release


def test_the_release_asks_the_servers_that_are_started() -> None:
    """By their names, at the port and for the model that they are started with."""
    services = _composed()["services"]
    for name, stage in (("small", _release().stages.small), ("large", _release().stages.large)):
        assert stage is not None
        told = services[name]["command"]
        options = dict(zip(told[::2], told[1::2], strict=True))
        assert stage.model_dump()["url"] == f"http://{name}:{options['--port']}"
        assert stage.model == options["--model-id"]
        assert set(services[name]["networks"]) & set(_sidecar()["networks"])


def test_the_release_is_where_the_sidecar_looks() -> None:
    """The file of the config is mounted under the name that the command gives."""
    (mounted,) = _sidecar()["configs"]
    command = _sidecar()["command"]
    assert command[command.index("--release") + 1] == mounted["target"]
    assert _composed()["configs"][mounted["source"]]["file"] == f"./{_RELEASE}"


def test_settings_are_settings() -> None:
    """An unknown variable of the sidecar's would end it at its start; the state outlives it."""
    variables = {name: str(value) for name, value in _sidecar()["environment"].items()}
    read = load_settings({}, environment=variables)
    assert f"state:{read.state_folder}" in _sidecar()["volumes"]
    assert "state" in _composed()["volumes"]


def test_the_sidecar_is_locked_down() -> None:
    """Nothing but its volumes can be written, no capability is left, and only this machine reaches it."""
    sidecar = _sidecar()
    assert sidecar["read_only"] is True
    assert sidecar["cap_drop"] == ["ALL"]
    assert sidecar["security_opt"] == ["no-new-privileges:true"]
    assert [each.split(":")[0] for each in sidecar["tmpfs"]] == ["/tmp"]  # noqa: S108
    assert sidecar["ports"] == ["127.0.0.1:8787:8787"]


def test_a_stop_has_the_time_that_it_takes() -> None:
    """Longer than draining, leftovers, and the 13 seconds of docs/admission.md."""
    read = Settings()
    longest = read.drain_seconds + read.leftover_seconds + 13
    assert int(_sidecar()["stop_grace_period"].removesuffix("s")) > longest


def test_the_image_is_built_from_the_file_that_is_there() -> None:
    """Its context is the checkout."""
    build = _sidecar()["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == (DEPLOY / "Dockerfile").resolve()


def test_the_file_of_tls_names_what_it_mounts() -> None:
    """Its settings lead to the secrets that the sidecar is given, and it adds nothing else."""
    (over,) = documents("compose-tls.yaml")
    sidecar = over["services"]["cascade"]
    named = {f"/run/secrets/{name}" for name in over["secrets"]}
    read = load_settings({}, environment=sidecar["environment"])
    assert {str(read.tls_certificate_file), str(read.tls_key_file)} == named
    assert set(sidecar["secrets"]) == set(over["secrets"])
    assert set(sidecar) == {"environment", "secrets"}
