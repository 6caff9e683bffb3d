"""``cascade config``."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer
import yaml

from cascade.cli.example import example
from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.policy.levels import level_named
from cascade.rollout.load import LoadedRelease, variables_of
from cascade.rollout.loadable import check_embedded
from cascade.server.building import query_hash, read_bundle, read_release
from cascade.server.caching import check_cache
from cascade.server.gate import check_keys
from cascade.server.tls import check_tls
from cascade.server.tracing import check_tracing
from cascade.stages.build import build_stages
from cascade.stages.engine.workers import worker_pool

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Check and show settings and the release.")


@app.command()
def validate(release: ReleaseFile = None, config: ConfigFile = None) -> None:
    """Check settings, release, credentials, certificates, libraries and weights; print the release or what is wrong."""
    settings = settings_from(config, release=release)
    bundle = read_bundle(settings)
    loaded = bundle.loaded
    level_named(loaded.release, settings.level)
    query_hash(settings.query_hash_key_file)
    check_keys(settings)
    for fault in check_tls(settings):
        typer.echo(f"cascade: {fault}", err=True)
    check_cache(settings, os.environ)
    check_tracing(settings)
    pool = worker_pool(1)
    build_stages(loaded.release, clock=time.monotonic, pool=pool, environment=os.environ)
    pool.close()
    check_embedded(loaded.release, fetch=True)
    if bundle.fault is not None:
        typer.echo(f"cascade: the safe mode would serve: {bundle.fault}", err=True)
    typer.echo(f"valid: release {loaded.release.release}, {loaded.digest}")


@app.command()
def dump(
    release: ReleaseFile = None,
    config: ConfigFile = None,
    expand: Annotated[bool, typer.Option(help="Fill in variables of the release.")] = False,
) -> None:
    """Print effective settings and the release. Tokens are never read; addresses stay unexpanded unless asked.

    Of its smoke queries only the lengths are told: they may be what users asked.
    """
    settings = settings_from(config, release=release)
    loaded = read_release(settings)
    shown: dict[str, Any] = {
        "settings": settings.model_dump(mode="json"),
        "release": loaded.release.model_dump(mode="json") if expand else _as_written(loaded),
        "variables": {
            name: "set" if name in os.environ else "not set" for name in sorted(variables_of(loaded.written))
        },
        "digest": loaded.digest,
        "policy_digest": loaded.policy_digest,
    }
    typer.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)


def _as_written(loaded: LoadedRelease) -> dict[str, Any]:
    """Return a release as it is written, but for the texts of its smoke queries."""
    smoke = loaded.release.rollout.model_dump(mode="json")["smoke"]
    if not smoke:
        return dict(loaded.written)
    return {**loaded.written, "rollout": {**loaded.written["rollout"], "smoke": smoke}}


app.command()(example)
