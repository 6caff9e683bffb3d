"""What ``cascade certify`` tells on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from cascade.calibration.certificate import Certificate

if TYPE_CHECKING:
    from cascade.fit.certify.asked import Asked
    from cascade.fit.certify.run import Outcome

__all__ = ["refuse", "tell", "tell_path"]


def refuse(done: Outcome, asked: Asked) -> NoReturn:
    """Say on stderr why there is no certificate, and end with status 1."""
    refusal = done.refusal
    said = () if refusal is None else refusal.says
    typer.echo(
        f"NOT CERTIFIED: a mean loss of at most {asked.epsilon:g} is not shown at delta {asked.delta:g}", err=True
    )
    for sentence in said:
        typer.echo(f"  {sentence}", err=True)
    typer.echo("  no certificate is written; always-large is what is safe", err=True)
    raise typer.Exit(1)


def tell_path(done: Outcome, console: Console) -> None:
    """Tell the policies that were tested, and the delta that each p was held against."""
    rows = Table(
        "family", "setting", "large share", "mean loss", "spread", "p", "",
        title=f"Tested, safest to cheapest, until p is above {done.delta:.3g}",
    )  # fmt: skip
    for point in done.path:
        rows.add_row(
            point.family, f"{point.setting:.3g}", f"{point.large_share:.3f}", f"{point.mean:+.4f}",
            f"{point.sigma:.3f}", f"{point.p:.3g}", "accepted" if point.accepted else "not shown",
        )  # fmt: skip
    console.print(rows)


def tell(certificate: Certificate, console: Console) -> None:
    """Tell what is certified."""
    contract, tried = certificate.contract, certificate.attempts
    console.print(
        f"CERTIFIED: mean loss of nDCG@{contract.k} ({contract.kind}, {contract.sided}-sided) at most {contract.epsilon:g}"
        f" with confidence {1 - contract.delta:g}, on {certificate.n} queries; attempt {tried.number}"
    )
    console.print(
        f"{certificate.policy.family} at {certificate.policy.setting:.3g} sends {certificate.large_share:.1%} of"
        f" always-large's pairs; mean loss {certificate.mean:+.4f}, bound {certificate.bound:+.4f}"
    )
    if certificate.as_served is not None:
        console.print(f"as served, with levels and fallbacks: bound {certificate.as_served.bound:+.4f}")
    judged = certificate.judged
    if judged is not None and min(judged.large, judged.policy) < 1.0:
        console.print(
            f"judged in the head: {judged.large:.1%} of the large order's, {judged.policy:.1%} of the policy's; the bound is"
            f" {judged.bound_unjudged_most:+.4f} where all that is unjudged is worth most"
        )
