"""What ``cascade eval`` writes beside the report: its page and its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cascade.errors import ConfigError

__all__ = ["Html", "Png", "check_places", "write_pages"]

Html = Annotated[
    Path | None, typer.Option("--html", help="Where report.html is written: one file that shows the report, offline.")
]
Png = Annotated[Path | None, typer.Option("--png", help="Folder for PNGs of the main charts; made if it is not there.")]


def check_places(out: Path, html: Path | None, png: Path | None, tables: Sequence[Path]) -> None:
    """Refuse what could only fail after the replay, and what would write over a table or the report. Raises ConfigError."""
    read = {path.resolve() for path in tables}
    for name, path in (("--out", out), ("--html", html)):
        if path is not None and path.resolve() in read:
            raise ConfigError(f"{name} {path}: is a table that is read")
    if html is not None and html.resolve() == out.resolve():
        raise ConfigError(f"--html {html}: is where the report itself is written; name another file")
    for name, path in (("--out", out), ("--html", html), ("--png", png)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{name} {path}: its folder is not there")
    for name, path in (("--out", out), ("--html", html)):
        if path is not None and path.is_dir():
            raise ConfigError(f"{name} {path}: is a folder; name a file")
    if png is not None and png.exists() and not png.is_dir():
        raise ConfigError(f"--png {png}: is no folder")


def write_pages(report: Mapping[str, Any], html: Path | None, png: Path | None) -> Iterator[str]:
    """Write what was asked for, and yield a line for each. Raises ConfigError."""
    if html is not None:
        from cascade.replay.html.page import write_page

        write_page(report, html)
        yield f"page: {html}"
    if png is not None:
        from cascade.replay.charts.pictures import FILES, write_pngs

        written = write_pngs(report, png)
        yield f"pictures: {png}: {', '.join(written)}"
        absent = [name for name in FILES if name not in written]
        if absent:
            yield f"not drawn, the report has nothing to draw: {', '.join(absent)}"
