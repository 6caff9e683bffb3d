"""How much of a listwise stage's prompts a vLLM has in its prefix cache, by its own counters before and after.

    python -m evals.prefix_cache --url http://127.0.0.1:8000 --model NAME --engine vllm/0.32 --out FILE

Orders made-up lists in four phases: new queries, the same lists again, the same queries with the last passages changed, and
with the first passages changed. Of each: prompt tokens that the server looked up and found (``/metrics``), and those that it
told in its answers (``usage.prompt_tokens_details``, where it was started with ``--enable-prompt-tokens-details``). It
counts tokens, and times nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from cascade.errors import ConfigError
from cascade.guard.deadline import Deadline
from cascade.policy.stage_specs import ChatStage
from cascade.stages.base import Stage
from cascade.stages.build import build_stage
from cascade.stages.engine.workers import worker_pool
from cascade.text import Text
from cascade.types import StageName

__all__ = ["PrefixCounters", "lists_of", "main", "measured", "read_counters"]

_NAMES: Final = ("vllm:prefix_cache", "vllm:gpu_prefix_cache")
"""A vLLM that renames a counter may tell it by both names for a while."""
_ROUND_MS: Final = 120_000.0
_TOPICS: Final = ("tide", "lamp", "lens", "fog", "storm", "harbour", "signal", "keeper")


@dataclass(frozen=True, slots=True)
class PrefixCounters:
    """Prompt tokens that a server looked up in its prefix cache since it started, and those that it found."""

    looked_up: float
    found: float

    def since(self, before: PrefixCounters) -> PrefixCounters:
        """Return what was counted after ``before``."""
        return PrefixCounters(self.looked_up - before.looked_up, self.found - before.found)


def read_counters(exposition: str) -> PrefixCounters | None:
    """Read the counters of vLLM, of its V1 engine by the name that it has; None where there are none. Engines are added up."""
    told: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            told[sample.name] = told.get(sample.name, 0.0) + sample.value
    for name in _NAMES:
        looked_up, found = told.get(f"{name}_queries_total"), told.get(f"{name}_hits_total")
        if looked_up is not None and found is not None:
            return PrefixCounters(looked_up, found)
    return None


def lists_of(queries: int, passages: int, *, first: str = "", last: str = "") -> list[tuple[str, list[str]]]:
    """Make lists of passages, each with its query; ``first`` and ``last`` change what stands in that half."""
    made = []
    for number in range(queries):
        topic = _TOPICS[number % len(_TOPICS)]
        texts = [
            f"Entry {place} on the {topic} number {number}{first if place < passages // 2 else last}: what the log says of it, "
            "in a sentence that is long enough to fill a block or two of the cache."
            for place in range(passages)
        ]
        made.append((f"how is the {topic} number {number} kept", texts))
    return made


async def measured(
    stage: Stage, counters: Callable[[], Awaitable[PrefixCounters]], *, queries: int, passages: int
) -> dict[str, Any]:
    """Order the lists of each phase with a started stage; return what was looked up and found in each."""
    phases: Mapping[str, Sequence[tuple[str, list[str]]]] = {
        "new queries": lists_of(queries, passages),
        "the same lists again": lists_of(queries, passages),
        "last passages changed": lists_of(queries, passages, last=" (revised)"),
        "first passages changed": lists_of(queries, passages, first=" (revised)"),
    }
    told: dict[str, Any] = {}
    for name, lists in phases.items():
        before = await counters()
        told_cached: list[int | None] = []
        repaired = 0
        for number, (query, texts) in enumerate(lists):
            scored = await stage.score(
                Text(query),
                [Text(text) for text in texts],
                deadline=Deadline.after_ms(_ROUND_MS, time.monotonic),
                call_id=f"prefix-{number}",
            )
            told_cached.append(scored.cost.prefix_tokens)
            repaired += scored.cost.repaired
        counted = (await counters()).since(before)
        told[name] = {
            "lists": len(lists),
            "looked up": counted.looked_up,
            "found": counted.found,
            "share found": round(counted.found / counted.looked_up, 3) if counted.looked_up else None,
            "found, as answers tell": None if None in told_cached else sum(one or 0 for one in told_cached),
            "mended": repaired,
        }
    return told


async def _run(asked: argparse.Namespace) -> dict[str, Any]:
    spec = ChatStage.model_validate(
        {
            "adapter": "chat",
            "url": asked.url,
            "model": asked.model,
            "engine": asked.engine,
            "max_length": asked.max_length,
            "form": asked.form,
        }
    )
    async with httpx.AsyncClient(base_url=asked.url, trust_env=False) as client:

        async def counters() -> PrefixCounters:
            found = read_counters((await client.get("/metrics")).text)
            if found is None:
                raise ConfigError(f"{asked.url}/metrics tells of no prefix cache")
            return found

        with worker_pool(1) as pool:
            stage = build_stage(
                StageName.LARGE, spec, budget_ms=_ROUND_MS, clock=time.monotonic, pool=pool, environment={}
            )
            try:
                await stage.start()
                phases = await measured(stage, counters, queries=asked.queries, passages=asked.passages)
            finally:
                await stage.aclose()
    conditions = {name: getattr(asked, name) for name in ("engine", "model", "form", "queries", "passages")}
    return {"conditions": conditions, "phases": phases}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one server and print, or write, what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--form", default="regex", choices=("text", "regex", "json-schema"))
    parser.add_argument("--max-length", type=int, default=8192)
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--passages", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    written = json.dumps(asyncio.run(_run(asked)), indent=1) + "\n"
    if asked.out is None:
        print(written, end="")
    else:
        asked.out.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
