"""Search by vectors, and keeping the vectors of an interrupted run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cascade.replay.dense import embed_collection
from tests.replay.arrange import DOCUMENTS, ScriptedEmbedder, collection


def _embedder() -> ScriptedEmbedder:
    return ScriptedEmbedder(lambda query, text: 0.0)


async def test_documents_come_by_cosine(tmp_path: Path) -> None:
    """The nearest is first, the cut is kept, and a blank document is never found."""
    index = await embed_collection(collection(), _embedder(), tmp_path / "v")
    found = await index.search("oil oil lamp", 50)
    assert [document for document, _ in found] == ["a", "b", "e", "c"]
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert await index.search("oil oil lamp", 2) == found[:2]
    query = np.array([1, 2, 0.1]) / np.linalg.norm([1, 2, 0.1])
    assert found[0][1] == pytest.approx(np.array([1, 1, 3.1]) / np.linalg.norm([1, 1, 3.1]) @ query)


@pytest.mark.parametrize("kept_bytes", [0, 5, 24, 30, 60, 1000])
async def test_a_file_of_vectors_is_gone_on_with(tmp_path: Path, kept_bytes: int) -> None:
    """Only what is missing is embedded, a torn vector again, and the result is the same."""
    path = tmp_path / "v"
    whole = await embed_collection(collection(), _embedder(), path)
    wanted = await whole.search("lamp", 5)
    written = path.read_bytes()
    path.write_bytes(written[:kept_bytes])
    embedder = _embedder()
    seen: list[int] = []
    index = await embed_collection(collection(), embedder, path, seen.append)
    assert path.read_bytes() == written
    assert await index.search("lamp", 5) == wanted
    kept = min(len(DOCUMENTS), kept_bytes // 12)
    assert embedder.embedded == 1 + len(DOCUMENTS) - kept + 1
    assert seen == ([kept] if kept < len(DOCUMENTS) else []) + [len(DOCUMENTS)]
