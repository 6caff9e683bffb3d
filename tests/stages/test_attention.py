"""One pair a call, a stage runs the exact form of attention where it scores the same bits; else the exported one, and says so."""

from __future__ import annotations

import gc
import os
import shutil
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
from onnx import TensorProto, helper, numpy_helper
from structlog.testing import capture_logs

from cascade.cache.key import identity_of
from cascade.errors import ConfigError
from cascade.policy.release import policy_digest
from cascade.stages.base import Observed
from cascade.stages.doctor import advise
from cascade.stages.engine.workers import Workers
from cascade.stages.graph.attention import Form, fuse_attention
from cascade.stages.graph.exact import WhyExported, exact_form
from cascade.stages.graph.graph import read_graph
from cascade.stages.onnx import OnnxReranker
from cascade.stages.onnx_loaded import LoadedCrossEncoder
from cascade.stages.probe import Probe, Verdict

from .onnx_arrange import DOCUMENTS, constant_model, onnx_spec, reranker, score_with, started


def _ran(stage: OnnxReranker) -> str | None:
    assert stage.observed is not None
    return stage.observed.attention


@asynccontextmanager
async def _as_served(folder: Path, pool: Workers) -> AsyncIterator[OnnxReranker]:
    """Give a stage of a model in a folder whose exact form is made in a process of its own."""
    stage = OnnxReranker("large", onnx_spec(folder), pool, time.monotonic)
    await stage.start()
    yield stage
    await stage.aclose()


async def test_the_exact_form_runs_unless_it_is_turned_off_with_the_same_scores(
    cross_encoder: Path, pool: Workers
) -> None:
    """Bit for bit, by a stage that tells which of them it runs, and is the same to all that goes by its fingerprint."""
    with capture_logs() as lines:
        async with _as_served(cross_encoder, pool) as stage:
            exact, ran, fingerprint = (await score_with(stage, DOCUMENTS)).scores, _ran(stage), stage.fingerprint
        async with started(onnx_spec(cross_encoder, attention="exported"), pool) as stage:
            exported, told = (await score_with(stage, DOCUMENTS)).scores, _ran(stage)
            assert stage.fingerprint == fingerprint
    assert exact == exported
    assert (ran, told) == ("exact", "exported")
    assert lines == []


@pytest.mark.parametrize("batching", [{"mode": "token-budget"}, {"mode": "token-budget", "max_pairs": 2}])
async def test_pairs_that_share_calls_run_the_exported_form(
    cross_encoder: Path, pool: Workers, batching: dict[str, Any]
) -> None:
    """The exact one reads no mask, so padding would be read; of a model that may be batched scores agree to rounding."""
    async with started(onnx_spec(cross_encoder), pool) as stage:
        alone = (await score_with(stage, DOCUMENTS)).scores
    async with started(onnx_spec(cross_encoder, batching=batching), pool) as stage:
        assert _ran(stage) == "exported"
        assert (await score_with(stage, DOCUMENTS)).scores == pytest.approx(alone, abs=1e-5)


def _fast(path: Path) -> bytes:
    """Plant a rewriting whose sums are taken in another order."""
    graph = read_graph(path)
    fuse_attention(graph, Form.FAST)
    return graph.to_bytes()


def test_what_is_known_of_scores_holds_whichever_form_runs(cross_encoder: Path, pool: Workers) -> None:
    """Kept scores and evidence of the one are those of the other: neither identity nor policy digest is another."""
    specs = [onnx_spec(cross_encoder, attention=form) for form in ("exact", "exported")]
    stages = [reranker(spec, pool) for spec in specs]
    said = (Observed(model="m", attention="exact"), Observed(model="m", attention="exported"))
    identities = {
        identity_of(spec, stage.fingerprint, each) for spec, stage, each in zip(specs, stages, said, strict=True)
    }
    assert len(identities) == 1
    written = [{"stages": {"large": {"model": "m", **more}}} for more in ({}, {"attention": "exported"})]
    assert policy_digest(written[0]) == policy_digest(written[1])


async def test_one_differing_bit_and_the_exported_form_runs(cross_encoder: Path, pool: Workers) -> None:
    """It is told in the log, once, and by the stage; scores are those of the file."""
    async with started(onnx_spec(cross_encoder, attention="exported"), pool) as stage:
        exported = (await score_with(stage, DOCUMENTS)).scores
    loaded = LoadedCrossEncoder(onnx_spec(cross_encoder), rewritten=_fast)
    stage = reranker(onnx_spec(cross_encoder), pool, loaded=loaded)
    with capture_logs() as lines:
        await stage.start()
        scores = [(await score_with(stage, DOCUMENTS)).scores for _ in range(2)]
    told = _ran(stage)
    await stage.aclose()
    assert scores == [exported, exported]
    assert told == f"exported: {WhyExported.OTHER_BITS}"
    (line,) = lines
    assert (line["event"], line["log_level"], line["stage"]) == ("attention as exported", "warning", "large")
    assert line["why"] == WhyExported.OTHER_BITS


def test_a_difference_at_one_drawn_length_alone_is_found(cross_encoder: Path) -> None:
    """Such as one that only inputs of 257 tokens show: there the planted form adds one to the score."""

    def planted(path: Path) -> bytes:
        model = onnx.load(path)
        output = model.graph.output[0].name
        for node in model.graph.node:
            for place, name in enumerate(node.output):
                node.output[place] = "planted.before" if name == output else name
        model.graph.initializer.append(helper.make_tensor("planted.length", TensorProto.INT64, [], [257]))
        model.graph.initializer.append(helper.make_tensor("planted.place", TensorProto.INT64, [], [1]))
        model.graph.node.extend(
            [
                helper.make_node("Shape", ["input_ids"], ["planted.shape"]),
                helper.make_node("Gather", ["planted.shape", "planted.place"], ["planted.size"]),
                helper.make_node("Equal", ["planted.size", "planted.length"], ["planted.is"]),
                helper.make_node("Cast", ["planted.is"], ["planted.one"], to=TensorProto.FLOAT),
                helper.make_node("Add", ["planted.before", "planted.one"], [output]),
            ]
        )
        return bytes(model.SerializeToString())

    loaded = LoadedCrossEncoder(onnx_spec(cross_encoder), rewritten=planted)
    assert loaded.why_exported is WhyExported.OTHER_BITS
    assert LoadedCrossEncoder(onnx_spec(cross_encoder, max_length=256), rewritten=planted).why_exported is None


async def test_a_form_that_cannot_be_run_leaves_the_exported_one(cross_encoder: Path, pool: Workers) -> None:
    """As with an onnxruntime that lacks the operator: what was let go for it is loaded again."""
    loaded = LoadedCrossEncoder(onnx_spec(cross_encoder), rewritten=lambda path: b"no graph")
    assert loaded.why_exported is WhyExported.NOT_LOADED
    stage = reranker(onnx_spec(cross_encoder), pool, loaded=loaded)
    await stage.start()
    assert None not in (await score_with(stage, DOCUMENTS)).scores
    await stage.aclose()


def test_a_form_that_fails_when_it_is_run_is_no_other_score(cross_encoder: Path) -> None:
    """What is told is that it does not run, and nothing of bits."""

    def failing(path: Path) -> bytes:
        model = onnx.load(path)
        output = model.graph.output[0].name
        for node in model.graph.node:
            for place, name in enumerate(node.output):
                node.output[place] = "planted.before" if name == output else name
        model.graph.initializer.append(helper.make_tensor("planted.shape", TensorProto.INT64, [1], [7]))
        model.graph.node.append(helper.make_node("Reshape", ["planted.before", "planted.shape"], [output]))
        return bytes(model.SerializeToString())

    loaded = LoadedCrossEncoder(onnx_spec(cross_encoder), rewritten=failing)
    assert loaded.why_exported is WhyExported.NOT_LOADED
    assert loaded.model.run([loaded.reader.read(loaded.reader.query("lamp"), "lamp").inputs[0]]).size == 1


def test_a_file_that_changes_while_it_is_loaded_is_refused(tmp_path: Path, cross_encoder: Path) -> None:
    """Its checksum was another file's: where the exported form is loaded once more, weights nobody checked would serve."""
    folder = shutil.copytree(cross_encoder, tmp_path / "m")

    def changing(path: Path) -> bytes:
        model = onnx.load(path)
        model.doc_string = "another"
        onnx.save(model, path)
        return _fast(path)

    with pytest.raises(ConfigError, match="changed while it was loaded"):
        LoadedCrossEncoder(onnx_spec(folder), rewritten=changing)


def test_a_file_that_is_gone_when_it_is_to_be_rewritten_leaves_the_exported_form(
    tmp_path: Path, cross_encoder: Path
) -> None:
    """It is loaded, and goes on."""
    folder = shutil.copytree(cross_encoder, tmp_path / "m")

    def gone(path: Path) -> bytes | WhyExported:
        path.unlink()
        return exact_form(path)

    assert LoadedCrossEncoder(onnx_spec(folder), rewritten=gone).why_exported is WhyExported.NOT_READ


def test_pairs_longer_than_what_is_compared_run_the_exported_form(tmp_path: Path, cross_encoder: Path) -> None:
    """A mask may hold a window of attention that no shorter input reaches, and the exact form reads none."""
    folder = shutil.copytree(cross_encoder, tmp_path / "m")
    model = onnx.load(folder / "model.onnx")
    (table,) = (item for item in model.graph.initializer if item.name.endswith("position_embeddings.weight"))
    (places,) = (node.attribute[0].t for node in model.graph.node if node.output[0] == "onnx::Slice_48")
    table.CopyFrom(numpy_helper.from_array(np.tile(numpy_helper.to_array(table), (4, 1)), table.name))
    places.CopyFrom(numpy_helper.from_array(np.arange(2048)[np.newaxis]))
    onnx.save(model, folder / "model.onnx")
    assert LoadedCrossEncoder(onnx_spec(folder, max_length=1024), rewritten=exact_form).why_exported is None
    assert LoadedCrossEncoder(onnx_spec(folder, max_length=1025)).why_exported is WhyExported.TOO_LONG


async def test_a_model_that_is_not_understood_runs_as_it_is(tmp_path: Path, cross_encoder: Path, pool: Workers) -> None:
    """No error, a line in the log; it scores as it always did."""
    folder = constant_model(tmp_path / "m", cross_encoder, [1.5], ["input_ids"])
    with capture_logs() as lines:
        async with started(onnx_spec(folder), pool) as stage:
            assert (await score_with(stage, ["lamp"])).scores == (1.5,)
            assert _ran(stage) == f"exported: {WhyExported.NOT_UNDERSTOOD}"
    assert [(line["event"], line["log_level"]) for line in lines] == [("attention as exported", "info")]


async def test_without_onnx_a_stage_serves_with_the_exported_form(
    tmp_path: Path, cross_encoder: Path, pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation from before it was part of the extra is slower, and the same otherwise."""
    (tmp_path / "onnx.py").write_text("raise ImportError\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    async with _as_served(cross_encoder, pool) as stage:
        assert None not in (await score_with(stage, DOCUMENTS)).scores
        assert _ran(stage) == f"exported: {WhyExported.NO_ONNX}"


async def test_a_model_that_knows_fewer_ids_than_its_tokenizer_is_not_compared(
    tmp_path: Path, cross_encoder: Path, pool: Workers
) -> None:
    """Random ids may be beyond its table; what it is asked to read is not."""
    folder = shutil.copytree(cross_encoder, tmp_path / "m")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([f"unread{number}" for number in range(5000)])
    tokenizer.save(str(folder / "tokenizer.json"))
    async with started(onnx_spec(folder), pool) as stage:
        assert _ran(stage) == f"exported: {WhyExported.NOT_COMPARED}"
        assert None not in (await score_with(stage, DOCUMENTS)).scores


def test_the_bytes_of_the_rewritten_file_are_let_go(cross_encoder: Path) -> None:
    """The library would hold them as long as the session lives."""
    size = (cross_encoder / "model.onnx").stat().st_size
    LoadedCrossEncoder(onnx_spec(cross_encoder))  # what is imported and cached at a first load
    tracemalloc.start()
    try:
        loaded = LoadedCrossEncoder(onnx_spec(cross_encoder))
        gc.collect()
        largest = max(trace.size for trace in tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
    assert loaded.why_exported is None
    assert largest < size / 2


def test_the_doctor_says_what_to_change_where_bits_differ(cross_encoder: Path) -> None:
    """And nothing where the exact form runs."""
    spec = onnx_spec(cross_encoder, revision="r1")
    sound = Probe(Verdict.OK, "", 1.0)
    advised = {
        told: advise(spec, Observed(model="m", attention=told), None, sound, {}, 100.0)
        for told in ("exact", f"exported: {WhyExported.OTHER_BITS}")
    }
    assert advised["exact"] == []
    (line,) = advised[f"exported: {WhyExported.OTHER_BITS}"]
    assert "attention: exported" in line
