"""``cascade collect --from-records``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from cascade.replay.from_records import Counts, gather
from cascade.replay.run import check_output
from cascade.replay.scorers import scorer_columns
from cascade.replay.table import write_table
from cascade.types import SCORING

__all__ = ["table_of_records"]


def table_of_records(
    records: Sequence[Path], out: Path, names: Sequence[str], release_digest: str | None, *, complete: bool
) -> None:
    """Make a score table of decision records, write it, and tell what became of them. Raises ConfigError."""
    columns = scorer_columns(SCORING, None, names)
    check_output(out)
    gathered = gather(records, columns=columns, release_digest=release_digest, complete=complete)
    write_table(out, gathered.table)
    counts = gathered.counts
    typer.echo(f"{out}: {counts.queries} queries, {len(gathered.table.doc_ids)} rows, from {counts.records} records")
    for line in _told(counts, complete=complete):
        typer.echo(line)
    if gathered.channels_left_out:
        typer.echo(f"channels left out, as no column of scores is called so: {', '.join(gathered.channels_left_out)}")


def _told(counts: Counts, *, complete: bool) -> list[str]:
    incomplete = "left out" if complete else "kept as they are"
    told = [
        (counts.recurring, "older ones of a query that came again"),
        (counts.incomplete, f"without all scores of both stages, {incomplete}"),
        (counts.other_release, "of other releases"),
        (counts.other_server, "scored while a server said otherwise of itself than at the end"),
        (counts.shadows, "of shadows: they answered no request"),
        (counts.torn, "lines torn"),
        (counts.strange, "lines that are no record of this version"),
        (counts.headless, "records without the line that says what they depend on"),
    ]
    lines = [f"{count} {what}" for count, what in told if count]
    if counts.of_cascade:
        others = "; q_mode=observe takes the others" if counts.of_cascade < counts.queries else ""
        told_of = "queries were escalated whole by their release: no sample of the traffic"
        lines.append(f"{counts.of_cascade} {told_of}{others}")
    if counts.keys > 1:
        lines.append(f"{counts.keys} hash keys: a query under two of them is in the table twice")
    return lines
