"""The embedded bi-encoder and its cache of vectors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.policy.release import EmbeddingStage
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.embedding import EmbeddingReranker, VectorCache
from cascade.text import Text
from cascade.types import Exclusion, ScoreSpace, StageScores


def _spec(folder: Path, **changes: Any) -> EmbeddingStage:
    fields = {"adapter": "onnx-embedding", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(folder)}}
    return EmbeddingStage.model_validate({**fields, **changes})


@asynccontextmanager
async def _started(spec: EmbeddingStage, pool: ThreadPoolExecutor) -> AsyncIterator[EmbeddingReranker]:
    stage = EmbeddingReranker("small", spec, pool, time.monotonic)
    await stage.start()
    yield stage
    await stage.aclose()


async def _score(stage: EmbeddingReranker, query: str, documents: Sequence[str]) -> StageScores:
    deadline = Deadline.after_ms(60_000, time.monotonic)
    return await stage.score(Text(query), [Text(d) for d in documents], deadline=deadline, call_id="t")


@pytest.mark.parametrize("pooling", ["cls", "mean"])
async def test_scores_are_cosines(bi_encoder: Path, pool: ThreadPoolExecutor, pooling: str) -> None:
    """A document equal to the query scores 1; every score lies within [-1, 1] in the declared space."""
    async with _started(_spec(bi_encoder, pooling=pooling), pool) as stage:
        scored = await _score(stage, "the lamp", ["the lamp", "bread", "tide and wind"])
    assert scored.scores[0] == pytest.approx(1.0, abs=1e-6)
    assert all(score is not None and -1 - 1e-6 <= score <= 1 + 1e-6 for score in scored.scores)
    assert stage.space is ScoreSpace.COSINE


async def test_mean_pooling_depends_on_every_token(bi_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """Mean pooling tells apart two documents that cls pooling, by the first token alone, does not."""
    documents = ["the lamp burns", "bread and wind"]
    async with _started(_spec(bi_encoder, pooling="cls"), pool) as stage:
        first = (await _score(stage, "tide", documents)).scores
    async with _started(_spec(bi_encoder, pooling="mean"), pool) as stage:
        mean = (await _score(stage, "tide", documents)).scores
    assert first[0] == first[1]
    assert mean[0] != mean[1]


async def test_a_document_costs_a_call_the_first_time_only(bi_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """Known documents cost no call, equal documents cost one, and scores are bit-equal either way."""
    async with _started(_spec(bi_encoder), pool) as stage:
        cold = await _score(stage, "lamp", ["wind", "tide", "wind"])
        warm = await _score(stage, "lamp", ["tide", "wind", "log"])
    assert cold.cost.calls == 3
    assert warm.cost.calls == 2
    assert warm.scores[0] == cold.scores[1]
    assert warm.scores[1] == cold.scores[0] == cold.scores[2]


async def test_nothing_is_kept_where_no_vector_may_be(bi_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """Zero kept vectors is a legal number: every request embeds anew."""
    async with _started(_spec(bi_encoder, cached_vectors=0), pool) as stage:
        first = await _score(stage, "lamp", ["wind", "tide"])
        second = await _score(stage, "lamp", ["wind", "tide"])
    assert first.cost.calls == second.cost.calls == 3
    assert first.scores == second.scores


async def test_vectors_made_before_a_deadline_are_kept(bi_encoder: Path) -> None:
    """A round that ran out of time still leaves the next one less to do."""
    documents = [f"{number} " + "tide wind log lamp " * 200 for number in range(3000)]
    with ThreadPoolExecutor(1) as narrow:
        async with _started(_spec(bi_encoder), narrow) as stage:
            with pytest.raises(StageTimeout):
                await stage.score(
                    Text("lamp"),
                    [Text(document) for document in documents],
                    deadline=Deadline.after_ms(150, time.monotonic),
                    call_id="t",
                )
            again = await _score(stage, "lamp", documents[:20])
    assert again.cost.calls < 21


async def test_blank_documents_are_excluded(bi_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """Blank documents get no score and no call."""
    async with _started(_spec(bi_encoder), pool) as stage:
        scored = await _score(stage, "lamp", ["", "wind", "  "])
    assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert [score is None for score in scored.scores] == [True, False, True]


async def test_the_packaged_model_ranks_an_answer_first(pool: ThreadPoolExecutor) -> None:
    """The small weights of the default release are loaded right."""
    small = load_release(default_release_path(), {}).release.stages.small
    assert isinstance(small, EmbeddingStage)
    async with _started(small, pool) as stage:
        scored = await _score(
            stage, "why do boats float", ["Bread is baked.", "A hull displaces water, so boats float."]
        )
    low, high = scored.scores
    assert low is not None
    assert high is not None
    assert high > 0.8
    assert low < 0.75


def test_a_cross_encoder_is_refused(cross_encoder: Path, pool: ThreadPoolExecutor) -> None:
    """A model that answers no state a token is a configuration error."""
    with pytest.raises(ConfigError, match="one state a token"):
        asyncio.run(EmbeddingReranker("small", _spec(cross_encoder), pool, time.monotonic).start())


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(0, 6))
def test_the_cache_keeps_the_vectors_used_last(touched: list[int], most: int) -> None:
    """After any sequence of uses exactly the last ``most`` different keys are kept."""
    cache = VectorCache(most)
    for number in touched:
        key = VectorCache.key(str(number))
        if cache.get(key) is None:
            cache.put(key, np.full(2, number, np.float32))
    last = list(dict.fromkeys(reversed(touched)))[:most]
    assert len(cache) == len(last)
    for number in last:
        kept = cache.get(VectorCache.key(str(number)))
        assert kept is not None
        assert kept[0] == number
