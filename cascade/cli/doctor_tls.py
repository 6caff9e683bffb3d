"""What ``cascade doctor`` tells of certificates: how many days each has left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import typer

from cascade.errors import ConfigError
from cascade.policy.release import HttpStage, Release
from cascade.server.settings import Settings
from cascade.server.tls import LISTENERS, tls_files
from cascade.stages.build import specs_of
from cascade.stages.certificates import expires_at, server_context
from cascade.stages.stage_tls import expiries

__all__ = ["Certificate", "certificates", "print_certificates"]

_SOON_DAYS = 14


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whose certificate it is, how many whole days it has left, and why it cannot be used, None where it can."""

    of: str
    days: int | None
    why_not: str | None = None

    @property
    def advice(self) -> str | None:
        """Return what to change, None where nothing need be."""
        if self.days is None:
            return self.why_not
        return f"renew the {self.of} before it ends" if self.days < _SOON_DAYS else None


async def certificates(settings: Settings, release: Release, now: float) -> list[Certificate]:
    """Return the certificates of the listeners, and those of stages and of their servers; ``now`` is in seconds since 1970."""
    found = [*_of_listeners(settings, now)]
    for name, spec in specs_of(release).items():
        if isinstance(spec, HttpStage):
            found += [Certificate(f"{what} of {name}", _days(end, now)) for what, end in (await expiries(spec)).items()]
    return found


def print_certificates(found: list[Certificate]) -> None:
    """Print a line for each, and what to change."""
    if not found:
        return
    typer.echo("certificates")
    for each in found:
        typer.echo(f"  {each.of}: " + ("cannot be used" if each.days is None else f"{each.days} days left"))
        if each.advice is not None:
            typer.echo(f"  change   {each.advice}")


def _of_listeners(settings: Settings, now: float) -> Iterator[Certificate]:
    for listener in LISTENERS:
        files = tls_files(settings, listener)
        if files is None:
            continue
        name = f"certificate of the {listener} listener"
        try:
            server_context(files.pair, files.client_ca)
            yield Certificate(name, _days(expires_at(files.pair, for_server=True), now))
        except ConfigError as error:
            yield Certificate(name, None, str(error))


def _days(end: float, now: float) -> int:
    return math.floor((end - now) / 86_400)
