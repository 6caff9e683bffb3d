"""The embedded bi-encoder and its cache of vectors."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from cascade.errors import ConfigError, StageInvalidAnswer, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.policy.release import EmbeddingStage, Weights
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.embedding import EmbeddingReranker, VectorCache
from cascade.stages.engine.workers import Workers, worker_pool
from cascade.stages.weights import find_model
from cascade.text import Text
from cascade.types import Exclusion, ScoreSpace, StageScores


def _spec(folder: Path, **changes: Any) -> EmbeddingStage:
    fields = {"adapter": "onnx-embedding", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(folder)}}
    return EmbeddingStage.model_validate({**fields, **changes})


@asynccontextmanager
async def _started(spec: EmbeddingStage, pool: Workers) -> AsyncIterator[EmbeddingReranker]:
    stage = EmbeddingReranker("small", spec, pool, time.monotonic)
    await stage.start()
    yield stage
    await stage.aclose()


async def _score(stage: EmbeddingReranker, query: str, documents: Sequence[str]) -> StageScores:
    deadline = Deadline.after_ms(60_000, time.monotonic)
    return await stage.score(Text(query), [Text(d) for d in documents], deadline=deadline, call_id="t")


@pytest.mark.parametrize("pooling", ["cls", "mean"])
async def test_scores_are_cosines(bi_encoder: Path, pool: Workers, pooling: str) -> None:
    """A document equal to the query scores 1; every score lies within [-1, 1] in the declared space."""
    async with _started(_spec(bi_encoder, pooling=pooling), pool) as stage:
        scored = await _score(stage, "the lamp", ["the lamp", "bread", "tide and wind"])
    assert scored.scores[0] == pytest.approx(1.0, abs=1e-6)
    assert all(score is not None and -1 - 1e-6 <= score <= 1 + 1e-6 for score in scored.scores)
    assert stage.space is ScoreSpace.COSINE


async def test_mean_pooling_depends_on_every_token(bi_encoder: Path, pool: Workers) -> None:
    """Mean pooling tells apart two documents that cls pooling, by the first token alone, does not."""
    documents = ["the lamp burns", "bread and wind"]
    async with _started(_spec(bi_encoder, pooling="cls"), pool) as stage:
        first = (await _score(stage, "tide", documents)).scores
    async with _started(_spec(bi_encoder, pooling="mean"), pool) as stage:
        mean = (await _score(stage, "tide", documents)).scores
    assert first[0] == first[1]
    assert mean[0] != mean[1]


async def test_a_document_costs_a_call_the_first_time_only(bi_encoder: Path, pool: Workers) -> None:
    """Known documents cost no call, equal documents cost one, and scores are bit-equal either way."""
    async with _started(_spec(bi_encoder), pool) as stage:
        cold = await _score(stage, "lamp", ["wind", "tide", "wind"])
        warm = await _score(stage, "lamp", ["tide", "wind", "log"])
    assert cold.cost.calls == 3
    assert warm.cost.calls == 2
    assert warm.scores[0] == cold.scores[1]
    assert warm.scores[1] == cold.scores[0] == cold.scores[2]


async def test_nothing_is_kept_where_no_vector_may_be(bi_encoder: Path, pool: Workers) -> None:
    """Zero kept vectors is a legal number: every request embeds anew."""
    async with _started(_spec(bi_encoder, cached_vectors=0), pool) as stage:
        first = await _score(stage, "lamp", ["wind", "tide"])
        second = await _score(stage, "lamp", ["wind", "tide"])
    assert first.cost.calls == second.cost.calls == 3
    assert first.scores == second.scores


async def test_vectors_made_before_a_deadline_are_kept(bi_encoder: Path) -> None:
    """A round that ran out of time still leaves the next one less to do."""
    documents = [f"{number:04} " + "tide wind log lamp " * 200 for number in range(600)]
    with worker_pool(1) as narrow:
        async with _started(_spec(bi_encoder), narrow) as stage:
            with pytest.raises(StageTimeout) as caught:
                await stage.score(
                    Text("lamp"),
                    [Text(document) for document in documents],
                    deadline=Deadline.after_ms(400, time.monotonic),
                    call_id="t",
                )
            assert 0 < caught.value.sent < 600
            assert caught.value.__context__ is None
            again = await _score(stage, "lamp", documents[:20])
    assert again.cost.calls < 21


@pytest.fixture(params=[np.nan, np.inf, 0.0], ids=["nan", "infinite", "zero"])
def hollow(request: pytest.FixtureRequest, tmp_path: Path, bi_encoder: Path) -> Path:
    """Give a folder with a model that has no direction for any text with the word "bread"."""
    model = onnx.load(bi_encoder / "model.onnx")
    table = numpy_helper.to_array(model.graph.initializer[0]).copy()
    word = tokenizers.Tokenizer.from_file(str(bi_encoder / "tokenizer.json")).encode("bread", add_special_tokens=False)
    table[word.ids if request.param == 0.0 else word.ids[:1]] = request.param
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(table, "table"))
    onnx.save(model, tmp_path / "model.onnx")
    plain = tokenizers.Tokenizer.from_file(str(bi_encoder / "tokenizer.json"))
    plain.post_processor = tokenizers.processors.TemplateProcessing("$A", "$A $B", [])
    plain.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


async def test_a_vector_that_is_no_direction_fails_the_round_and_is_not_kept(hollow: Path, pool: Workers) -> None:
    """Nothing of such a text stays behind: it is embedded anew each time, and documents without it are scored."""
    async with _started(_spec(hollow, pooling="mean"), pool) as stage:
        for _ in range(2):
            with pytest.raises(StageInvalidAnswer, match="small: not_a_number") as caught:
                await _score(stage, "lamp", ["bread"])
            assert caught.value.__context__ is None
            assert caught.value.sent == 1
        assert len(stage._cache) == 0
        assert (await _score(stage, "lamp", ["lamp"])).scores == pytest.approx([1.0])


async def test_a_template_is_refused_where_its_end_could_be_cut(bi_encoder: Path, pool: Workers) -> None:
    """An embedded model cuts what is too long, whatever the cut text was for."""
    with pytest.raises(ConfigError, match="small: serializer: an embedded model cuts long pairs"):
        EmbeddingReranker("small", _spec(bi_encoder, serializer="qwen3-reranker@1"), pool, time.monotonic)


async def test_what_is_observed_is_the_model_and_the_digest_of_its_files(bi_encoder: Path, pool: Workers) -> None:
    """A file that is exchanged makes another one, under the same declared name."""
    async with _started(_spec(bi_encoder), pool) as stage:
        observed = stage.observed
    assert observed is not None
    assert observed.model == "m"
    assert observed.weights_sha256 == find_model(Weights(folder=str(bi_encoder))).digest()


async def test_blank_documents_are_excluded(bi_encoder: Path, pool: Workers) -> None:
    """Blank documents get no score and no call."""
    async with _started(_spec(bi_encoder), pool) as stage:
        scored = await _score(stage, "lamp", ["", "wind", "  "])
    assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
    assert [score is None for score in scored.scores] == [True, False, True]


async def test_the_packaged_model_ranks_an_answer_first(pool: Workers) -> None:
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


def test_a_cross_encoder_is_refused(cross_encoder: Path, pool: Workers) -> None:
    """A model that answers no state a token is a configuration error."""
    with pytest.raises(ConfigError, match="one state a token"):
        asyncio.run(EmbeddingReranker("small", _spec(cross_encoder), pool, time.monotonic).start())


def _rewritten(folder: Path, bi_encoder: Path, rows: int) -> Path:
    """Write the model with a table of places that has so many rows."""
    model = onnx.load(bi_encoder / "model.onnx")
    places = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    model.graph.initializer.append(numpy_helper.from_array(places, "places"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "one"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
    model.graph.node[0].output[0] = "words"
    model.graph.node.extend(
        [
            onnx.helper.make_node("Shape", ["input_ids"], ["shape"]),
            onnx.helper.make_node("Gather", ["shape", "one"], ["length"]),
            onnx.helper.make_node("Range", ["zero", "length", "one"], ["numbers"]),
            onnx.helper.make_node("Gather", ["places", "numbers"], ["placed"]),
            onnx.helper.make_node("Add", ["words", "placed"], ["states"]),
        ]
    )
    onnx.save(model, folder / "model.onnx")
    shutil.copy(bi_encoder / "tokenizer.json", folder)
    return folder


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (2, r"^small: weights: the model fails on fixed texts: \w+$"),
        (64, r"^small: weights: the model fails on fixed texts: \w+; it may not take max_length \(65\) tokens: lower"),
    ],
)
def test_a_model_that_cannot_take_what_is_declared_is_refused_at_load(
    tmp_path: Path, bi_encoder: Path, pool: Workers, rows: int, told: str
) -> None:
    """Before the first text comes, or the first that is long: each of those would fail its round."""
    folder = _rewritten(tmp_path, bi_encoder, rows)
    if rows > 2:
        asyncio.run(EmbeddingReranker("small", _spec(folder, max_length=rows), pool, time.monotonic).start())
    with pytest.raises(ConfigError, match=told):
        asyncio.run(EmbeddingReranker("small", _spec(folder, max_length=65), pool, time.monotonic).start())


def test_a_tokenizer_that_panics_is_refused_at_load(tmp_path: Path, bi_encoder: Path, pool: Workers) -> None:
    """What its library raises then is no Exception: let through, it would end more than the load."""
    shutil.copy(bi_encoder / "model.onnx", tmp_path)
    special = {"SpecialToken": {"id": "b", "type_id": 0}}
    post = {"type": "TemplateProcessing", "single": [special], "pair": [special], "special_tokens": {}}
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    written = {"version": "1.0", "added_tokens": [], "model": model, "post_processor": post}
    (tmp_path / "tokenizer.json").write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=f"^small: weights: {tmp_path}/tokenizer.json cannot read text: PanicException$"
    ):
        asyncio.run(EmbeddingReranker("small", _spec(tmp_path), pool, time.monotonic).start())


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


@pytest.mark.parametrize("pooling", ["cls", "mean"])
async def test_vectors_are_those_that_scores_are_made_of(bi_encoder: Path, pool: Workers, pooling: str) -> None:
    """A collection's vectors have length 1, one a text in order, and give a round's scores with the query's."""
    texts = ["the lamp\nburns", "bread", "tide and wind", "bread"]
    spec = _spec(bi_encoder, pooling=pooling, serializer="single-line@1")
    async with _started(spec, pool) as stage:
        documents = await stage.vectors([Text(text) for text in texts])
        (query,) = await stage.vectors([Text("the lamp")], queries=True)
        scored = await _score(stage, "the lamp", texts)
    assert documents.shape == (4, 8)
    assert np.linalg.norm(documents, axis=1) == pytest.approx(np.ones(4), abs=1e-6)
    assert (documents @ query).tolist() == pytest.approx(list(scored.scores), abs=1e-6)


async def test_vectors_of_documents_are_kept_for_rounds(bi_encoder: Path, pool: Workers) -> None:
    """A document embedded with its collection costs a round no call."""
    async with _started(_spec(bi_encoder), pool) as stage:
        await stage.vectors([Text("bread"), Text("tide")])
        await stage.vectors([Text("lamp")], queries=True)
        scored = await _score(stage, "lamp", ["bread", "tide", "lamp"])
    assert scored.cost.calls == 2


async def test_vectors_need_a_started_stage(bi_encoder: Path, pool: Workers) -> None:
    """Asking before the model is loaded is a fault of ours."""
    stage = EmbeddingReranker("small", _spec(bi_encoder), pool, time.monotonic)
    with pytest.raises(RuntimeError, match="started before it embeds"):
        await stage.vectors([Text("bread")])


async def test_a_text_without_a_direction_has_no_vector(hollow: Path, pool: Workers) -> None:
    """The whole call fails like a round, and its error holds no text."""
    async with _started(_spec(hollow, pooling="mean"), pool) as stage:
        with pytest.raises(StageInvalidAnswer, match="small: not_a_number") as caught:
            await stage.vectors([Text("tide"), Text("bread")])
    assert caught.value.__context__ is None
