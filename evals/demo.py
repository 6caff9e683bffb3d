"""Show the sidecar at work: start it on the default release, rerank one query, print before and after.

python evals/demo.py [--query q01]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from cascade.replay.collection import Collection, load_collection
from cascade.replay.first_stage import FirstStage
from evals.sidecar import running_sidecar

_COLLECTION = Path(__file__).parent / "collections" / "lighthouse"
_SHOWN = 10


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Rerank one query of the project's own collection.")
    parser.add_argument("--query", default="q01", help="query id, q01 to q19")
    query_id = parser.parse_args().query
    console = Console(width=118)
    collection = load_collection(_COLLECTION)
    if query_id not in collection.queries:
        console.print(f"no query {query_id}; there are {', '.join(collection.queries)}")
        return 2
    query = collection.queries[query_id]
    found = FirstStage(collection).search(query, 50)
    candidates = [
        {"id": document, "text": collection.documents[document], "scores": {"bm25": score}} for document, score in found
    ]
    console.print(f"[bold]query[/bold] {query}\n{len(candidates)} candidates from BM25, in its order\n")
    with running_sidecar() as (url, _), httpx.Client(timeout=60) as client:
        for label in ("first request, no document seen before", "the same again, document vectors kept"):
            began = time.perf_counter()
            body = {"query": query, "candidates": candidates, "explain": True}
            answer = client.post(f"{url}/v1/cascade/rerank", json=body).raise_for_status().json()
            _show_decision(console, label, answer, (time.perf_counter() - began) * 1000)
        _show_orders(console, collection, query_id, [document for document, _ in found], answer)
    return 0


def _show_decision(console: Console, label: str, answer: dict[str, Any], milliseconds: float) -> None:
    explain = answer["explain"]
    console.print(f"[bold]{label}[/bold]")
    console.print(
        f"  answered by {answer['stage']}, release {answer['release']}, "
        f"{milliseconds:.0f} ms of {explain['deadline_ms']:.0f} ms, degraded: {', '.join(answer['degraded']) or 'no'}"
    )
    for item in explain["rounds"]:
        console.print(
            f"  {item['stage']:5} {item['scored']} of {item['sent']} scored in {item['elapsed_ms']:.0f} ms, "
            f"{item.get('calls', 0)} model calls, {item.get('tokens', 0)} tokens  ({item['model']})"
        )
    console.print(f"  depth {explain['depth']}, escalated {len(explain['escalated'])}: {explain['escalated']}\n")


def _show_orders(
    console: Console, collection: Collection, query_id: str, before: list[str], answer: dict[str, Any]
) -> None:
    grades = collection.judgements[query_id]
    table = Table(title=f"first {_SHOWN} places")
    for name in ("rank", "before (BM25)", "after", "came from", "score", "placed by"):
        table.add_column(name, no_wrap=True)
    for rank, result in enumerate(answer["results"][:_SHOWN]):
        table.add_row(
            str(rank + 1),
            _title(collection, before[rank], grades),
            _title(collection, result["id"], grades),
            str(result["index"] + 1),
            f"{result['score']:.4f}",
            result["stage"],
        )
    console.print(table)
    console.print("* judged relevant, ** judged to be the answer")


def _title(collection: Collection, document: str, grades: Any) -> str:
    return f"{document} {collection.documents[document][:26]} {'*' * max(0, grades.get(document, 0))}"


if __name__ == "__main__":
    sys.exit(main())
