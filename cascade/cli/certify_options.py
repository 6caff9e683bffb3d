"""How options of ``cascade certify`` become what is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cascade.cli.certify_base import first_level
from cascade.errors import ConfigError

if TYPE_CHECKING:
    from cascade.fit.certify.served import Mix
    from cascade.fit.certify.splits import Shares

__all__ = ["Families", "families_of", "mix_of", "shares_of"]

Families = Literal["calibrated", "static-fused", "static", "all"]


def families_of(named: Families, *, released: bool) -> tuple[Any, ...]:
    """Return the families that a path is made of: the release's own rule where one is named."""
    from cascade.fit.certify.replays import Family

    if released:
        return (Family.RELEASE,)
    return (Family.STATIC, Family.FUSED, Family.CALIBRATED) if named == "all" else (Family(named),)


def shares_of(written: str | None) -> Shares | None:
    """Return the shares as written, None where the default holds. Raises ConfigError."""
    from cascade.fit.certify.splits import Shares

    if written is None:
        return None
    try:
        fit, choose, certify_ = map(float, written.split(","))
    except ValueError:
        raise ConfigError("--shares: write three numbers: FIT,CHOOSE,CERTIFY") from None
    return Shares(fit, choose, certify_)


def mix_of(levels: str | None, rate: float | None, counted: str | None, release: Path | None) -> Mix | None:
    """Return what serves beside the policy, None where nothing was said of it. Raises ConfigError."""
    from cascade.fit.certify.served import Mix

    if levels is None and rate is None and counted is None:
        return None
    normal = first_level(release)
    return Mix(
        normal, _levels(levels) if levels else {normal: 1.0}, rate, None if counted is None else _counts(counted)
    )


def _levels(written: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for each in written.split(","):
        name, _, share = each.strip().partition("=")
        try:
            value = float(share)
        except ValueError:
            raise ConfigError("--levels-served: write LEVEL=SHARE,LEVEL=SHARE") from None
        if not name or name in shares:
            raise ConfigError("--levels-served: each level once, and by its name")
        shares[name] = value
    return shares


def _counts(written: str) -> tuple[int, int]:
    happened, slash, of = written.partition("/")
    if not (slash and happened.isdigit() and of.isdigit()):
        raise ConfigError("--fallbacks: write X/N, fallbacks of requests")
    return int(happened), int(of)
