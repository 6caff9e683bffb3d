"""``cascade config``."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
import yaml

from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.policy.release import HttpStage
from cascade.rollout.load import variables_of
from cascade.server.lifecycle import read_release
from cascade.stages.serializers import serializer
from cascade.stages.upstream import build_client, read_token

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Check and show settings and the release.")


@app.command()
def validate(release: ReleaseFile = None, config: ConfigFile = None) -> None:
    """Check settings, release, credentials and CA bundles; print what was checked or what is wrong."""
    loaded = read_release(settings_from(config, release=release))
    for spec in (loaded.release.stages.small, loaded.release.stages.large):
        if spec is not None:
            serializer(spec.serializer)
        if isinstance(spec, HttpStage):
            read_token(spec.auth)
            build_client(spec)
    typer.echo(f"valid: release {loaded.release.release}, {loaded.digest}")


@app.command()
def dump(
    release: ReleaseFile = None,
    config: ConfigFile = None,
    expand: Annotated[bool, typer.Option(help="Fill in variables of the release.")] = False,
) -> None:
    """Print effective settings and the release. Tokens are never read; addresses stay unexpanded unless asked."""
    settings = settings_from(config, release=release)
    loaded = read_release(settings)
    shown: dict[str, Any] = {
        "settings": settings.model_dump(mode="json"),
        "release": loaded.release.model_dump(mode="json") if expand else dict(loaded.written),
        "variables": {
            name: "set" if name in os.environ else "not set" for name in sorted(variables_of(loaded.written))
        },
        "digest": loaded.digest,
        "policy_digest": loaded.policy_digest,
    }
    typer.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)
