"""``cascade rerank``."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.decision import Ranking
from cascade.server.building import open_service
from cascade.server.dialects.base import Parsed
from cascade.server.dialects.native import NativeFormat
from cascade.server.groups import rerank_parsed
from cascade.server.http import as_json
from cascade.server.settings import Settings
from cascade.telemetry.logs import configure_logging

__all__ = ["OutputFormat", "rerank"]


class OutputFormat(StrEnum):
    """How the answer is printed."""

    JSON = "json"
    TABLE = "table"


def rerank(
    release: ReleaseFile = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="json or table.")] = OutputFormat.JSON,
    config: ConfigFile = None,
) -> None:
    """Rerank one request, JSON in the native format on stdin, and print the answer."""
    configure_logging("warning", sys.stderr.buffer)
    ranking, parsed = asyncio.run(_rerank(settings_from(config, release=release), sys.stdin.buffer.read()))
    match output:
        case OutputFormat.JSON:
            sys.stdout.buffer.write(NativeFormat().render(ranking, parsed).body + b"\n")
        case OutputFormat.TABLE:
            _print_table(ranking)


async def _rerank(settings: Settings, body: bytes) -> tuple[Ranking, Parsed]:
    async with open_service(settings) as service:
        pipeline = service.traffic.stable.pipeline
        parsed = NativeFormat().parse(as_json(body), {}, pipeline.release.limits.max_documents)
        return await rerank_parsed(lambda: pipeline, parsed), parsed


def _print_table(ranking: Ranking) -> None:
    decision = ranking.decision
    table = Table("rank", "before", "id", "score", "stage")
    for rank, item in enumerate(ranking.results, start=1):
        table.add_row(str(rank), str(item.index + 1), Text(item.id or ""), f"{item.score:.4f}", item.stage)
    console = Console()
    console.print(table)
    console.print(
        f"answered by {decision.stage}; depth {decision.depth}; escalated {len(decision.escalated)}; "
        f"{decision.total_ms:.0f} of {decision.deadline_ms:.0f} ms; degraded: {', '.join(decision.degraded) or 'no'}",
        soft_wrap=True,
    )
