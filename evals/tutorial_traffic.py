"""Send the tutorial's traffic to a running sidecar: sentences of the demo's collection as queries, with BM25's candidates.

python evals/tutorial_traffic.py --part 1      # or 2: other sentences
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from cascade.replay.collection import load_collection
from cascade.replay.first_stage import FirstStage

_COLLECTION = Path(__file__).parent / "collections" / "lighthouse"
_CANDIDATES = 20
_LEAST_WORDS = 5


def main() -> int:
    """Send one part's queries, one after the other; say who answered. Exits with 1 where one was not answered."""
    parser = argparse.ArgumentParser(description="Send the tutorial's traffic to a running sidecar.")
    parser.add_argument("--part", type=int, choices=(1, 2), default=1, help="half of the queries")
    parser.add_argument("--times", type=int, default=1, help="how often each is sent")
    parser.add_argument("--url", default="http://127.0.0.1:8787", help="address of the public listener")
    asked = parser.parse_args()
    collection = load_collection(_COLLECTION)
    first_stage = FirstStage(collection)
    told: Counter[tuple[str, str]] = Counter()
    with httpx.Client(base_url=asked.url, timeout=60) as client:
        for query in queries(asked.part) * asked.times:
            candidates = [
                {"id": document, "text": collection.documents[document], "scores": {"bm25": score}}
                for document, score in first_stage.search(query, _CANDIDATES)
            ]
            body = {"query": query, "candidates": candidates}
            answer = client.post("/v1/cascade/rerank", json=body).raise_for_status()
            told[answer.headers["x-cascade-release"], answer.headers.get("x-cascade-degraded", "as planned")] += 1
    for (release, how), count in sorted(told.items()):
        print(f"{count} answered by {release}, {how}")
    return 0


def queries(part: int) -> list[str]:
    """Return one half of the collection's sentences, those of every second document."""
    texts = list(load_collection(_COLLECTION).documents.values())[part - 1 :: 2]
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=[.?!])\s+", text)]
    return [sentence for sentence in sentences if len(sentence.split()) >= _LEAST_WORDS]


if __name__ == "__main__":
    sys.exit(main())
