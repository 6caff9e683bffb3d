"""A score table from beginning to end, with stages that do as they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascade.errors import ConfigError, StageError, StageInvalidAnswer, StageOverloaded, StageTimeout
from cascade.replay.collect import choose_queries
from cascade.replay.collection import Collection
from cascade.replay.run import Asked, Collected, collect_table
from cascade.replay.table import ScoreTable, data_sha256, read_table
from cascade.stages.base import Observed, Stage
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage, fingerprint
from cascade.types import StageName
from tests.replay.arrange import DOCUMENTS, QUERIES, ScriptedEmbedder, collection

_COLUMNS = {"small": StageName.SMALL, "large": StageName.LARGE}


def _stages(**large: Any) -> dict[StageName, ScriptedStage]:
    """Return a small stage that counts letters in 10 ms, and a large one that counts them the other way in 40 ms."""
    small = ScriptedStage(lambda query, text: float(len(text)), delay_ms=10, fingerprint=fingerprint("little"))
    far = ScriptedStage(lambda query, text: -float(len(text)), delay_ms=40, fingerprint=fingerprint("big"))
    return {StageName.SMALL: small, StageName.LARGE: replace(far, **large)}


def _asked(folder: Path, of: Collection | None = None, **fields: Any) -> Asked:
    whole = of or collection()
    base = Asked(whole, choose_queries(whole, None), _COLUMNS, folder / "t.parquet", depth=3)
    return replace(base, **fields)


def _run(
    asked: Asked,
    stages: Mapping[StageName, Stage],
    report: Callable[[str, int, int], None] = lambda what, done, total: None,
    *,
    interrupt_at: int | None = None,
) -> Collected:
    """Collect on virtual time; ``interrupt_at`` so many queries the run is cancelled, as Ctrl-C does."""

    async def go() -> Collected:
        main = asyncio.current_task()

        def told(what: str, done: int, total: int) -> None:
            report(what, done, total)
            if main is not None and what == "queries scored" and done == interrupt_at:
                main.cancel()

        return await collect_table(
            asked,
            stages,
            clock=asyncio.get_running_loop().time,
            now=lambda: datetime(2026, 11, 29, 12, tzinfo=UTC),
            threads=2,
            report=told,
        )

    return run_virtual(go())


def _column(table: ScoreTable, query: str, name: str) -> list[Any]:
    rows = table.rows(table.query_ids.index(query))
    return list(table.column(name)[rows]) if name in table.scores else list(table.attributes[name][rows])


def test_a_table_holds_every_candidate_with_both_scores(tmp_path: Path) -> None:
    """Candidates in BM25's order, both stages' scores, judgements, tokens, time a pair and the query's class."""
    asked = _asked(tmp_path)
    told = _run(asked, _stages())
    table = read_table(asked.out)
    assert told == Collected(4, 2, 1, {"small": 0, "large": 0}, 0, ())
    assert table.query_ids == ("q1", "q2")
    assert table.doc_ids == ("b", "a", "e", "c")
    assert table.rank_first is not None
    assert table.rank_first.tolist() == [1, 2, 3, 1]
    assert _column(table, "q1", "bm25") == sorted(_column(table, "q1", "bm25"), reverse=True)
    assert _column(table, "q1", "small") == [len(DOCUMENTS[name]) for name in "bae"]
    assert _column(table, "q1", "large") == [-len(DOCUMENTS[name]) for name in "bae"]
    assert table.rel is not None
    assert table.rel.tolist() == [0, 2, 0, 1]
    assert table.grades == ((2, 1), (1,))
    assert _column(table, "q1", "ms_small") == pytest.approx([10 / 3] * 3)
    assert _column(table, "q2", "ms_large") == pytest.approx([40])
    assert _column(table, "q1", "tokens")[1] == 2 + 5 + 4
    assert _column(table, "q2", "source") == ["tiny"]
    assert _column(table, "q2", "q_tokens") == [10]
    assert {len(_column(table, "q1", name)) for name in ("q_class", "q_identifiers")} == {3}


def test_the_table_says_how_it_was_made(tmp_path: Path) -> None:
    """Fingerprints, versions, machine, times, counts and the first stage, without a path and without text."""
    asked = _asked(tmp_path, columns={"bge_small": StageName.SMALL, "large": StageName.LARGE})
    _run(asked, _stages())
    conditions = read_table(asked.out).conditions
    assert conditions["scorers"]["bge_small"]["stage"] == "small"
    assert conditions["scorers"]["bge_small"]["fingerprint"]["model"] == "little"
    assert conditions["scorers"]["large"]["fingerprint"]["model"] == "big"
    counts = {"rows": 4, "scored": 2, "without_candidates": 1, "failed": 0, "reasons": []}
    assert conditions["counts"] == {**counts, "excluded": {"bge_small": 0, "large": 0}}
    assert conditions["times"] == {"began": "2026-11-29T12:00:00+00:00", "ended": "2026-11-29T12:00:00+00:00"}
    assert (conditions["depth"], conditions["threads"], conditions["concurrency"]) == (3, 2, 1)
    assert conditions["collection"]["name"] == "tiny"
    assert conditions["first_stage"].startswith("bm25: Lucene's variant")
    assert {"python", "numpy", "bm25s", "pyarrow"} <= conditions["versions"].keys()
    written = json.dumps(conditions)
    assert str(tmp_path) not in written
    assert not any(text in written for text in (*QUERIES.values(), *(t for t in DOCUMENTS.values() if t.strip())))


def test_the_file_holds_no_text(tmp_path: Path) -> None:
    """Neither the table nor the journal of an unfinished run has a word of a query or document."""
    asked = _asked(tmp_path, collection(judgements={}))
    with pytest.raises(asyncio.CancelledError):
        _run(asked, _stages(), interrupt_at=4)
    journal = asked.journal.read_bytes()
    _run(asked, _stages())
    for written in (journal, asked.out.read_bytes()):
        assert not any(word in written for word in (b"lamp", b"flour", b"zebra", b"4711"))


def test_without_judgements_all_queries_count_and_nothing_is_judged(tmp_path: Path) -> None:
    """There is no grade to tell, and no ideal list."""
    asked = _asked(tmp_path, collection(judgements={}))
    _run(asked, _stages())
    table = read_table(asked.out)
    assert (table.query_ids, table.rel, table.grades) == (("q1", "q2", "q4"), None, None)
    assert _column(table, "q4", "q_identifiers") == [1]


def test_a_document_that_a_stage_leaves_out_has_no_score(tmp_path: Path) -> None:
    """It is NaN, counted, and its row stays; the time is divided by the pairs sent."""
    asked = _asked(tmp_path)
    told = _run(asked, _stages(refuses=lambda text: "stove" in text))
    table = read_table(asked.out)
    assert np.isnan(_column(table, "q1", "large")).tolist() == [True, False, False]
    assert np.isnan(_column(table, "q1", "small")).tolist() == [False] * 3
    assert told.excluded == {"small": 0, "large": 1}


def test_a_blank_document_is_never_a_candidate(tmp_path: Path) -> None:
    """Neither words nor vectors find it, however deep the first stage goes."""
    asked = _asked(tmp_path, dense=True, depth=5)
    stages = _stages()
    stages[StageName.SMALL] = ScriptedEmbedder(lambda query, text: 1.0, fingerprint=fingerprint("little"))
    _run(asked, stages)
    table = read_table(asked.out)
    assert "d" not in table.doc_ids
    assert set(table.doc_ids[table.rows(0)]) == {"a", "b", "c", "e"}


def test_the_dense_channel_joins_by_reciprocal_rank(tmp_path: Path) -> None:
    """What only vectors found has no BM25 score, a query without a known word has candidates, and the vectors go."""
    asked = _asked(tmp_path, dense=True)
    stages = _stages()
    stages[StageName.LARGE] = ScriptedEmbedder(lambda query, text: 1.0, fingerprint=fingerprint("big"))
    seen: list[tuple[str, int, int]] = []
    _run(asked, stages, lambda what, done, total: seen.append((what, done, total)))
    table = read_table(asked.out)
    assert table.query_ids == ("q1", "q2", "q3")
    assert np.isnan(_column(table, "q3", "bm25")).all()
    assert table.doc_ids[table.rows(0)][:2] == ("b", "a")
    assert table.conditions["embedder"]["model"] == "big"
    assert "joined by RRF(60)" in table.conditions["first_stage"]
    assert seen[:3] == [("documents embedded", 0, 5), ("documents embedded", 5, 5), ("queries scored", 0, 3)]
    assert seen[-1] == ("queries scored", 3, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet"]


def test_dense_needs_a_stage_that_embeds(tmp_path: Path) -> None:
    """A release of cross-encoders has no vectors, and that is said before anything is scored."""
    stages = _stages()
    with pytest.raises(ConfigError, match=r"^dense: the release has no stage of the adapter onnx-embedding"):
        _run(_asked(tmp_path, dense=True), stages)
    assert list(tmp_path.iterdir()) == []


def test_vectors_of_another_run_are_not_used(tmp_path: Path) -> None:
    """Vectors without the journal that says what they are of are made again."""
    asked = _asked(tmp_path, dense=True)
    asked.vectors.write_bytes(bytes(5 * 12))
    embedder = ScriptedEmbedder(lambda query, text: 1.0, fingerprint=fingerprint("little"))
    _run(asked, {**_stages(), StageName.SMALL: embedder})
    assert embedder.embedded == 1 + len(DOCUMENTS) + 3
    assert min(_column(read_table(asked.out), "q1", "dense")) > 0.1


def test_no_candidate_at_all_is_told(tmp_path: Path) -> None:
    """There is no table without a row."""
    with pytest.raises(ConfigError, match="no query has a candidate"):
        _run(_asked(tmp_path, collection(queries={"q": "zebra"}, judgements={})), _stages())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_interrupted_run_goes_on_without_scoring_again(tmp_path: Path, concurrency: int) -> None:
    """The second run scores what is left, and the table is that of one whole run."""
    whole = _asked(tmp_path, collection(judgements={}), out=tmp_path / "whole.parquet", concurrency=concurrency)
    _run(whole, _stages())
    asked = replace(whole, out=tmp_path / "t.parquet")
    with pytest.raises(asyncio.CancelledError):
        _run(asked, _stages(), interrupt_at=2)
    kept = [json.loads(line) for line in asked.journal.read_bytes().splitlines()[1:]]
    assert len(kept) >= 2
    assert not asked.out.exists()
    second = _stages()
    _run(asked, second)
    assert len(second[StageName.LARGE].calls) == 3 - sum(bool(entry["documents"]) for entry in kept)
    tables = [read_table(one.out) for one in (whole, asked)]
    digests = {data_sha256(table, ["bm25", "small", "large", "rank_first"]) for table in tables}
    assert len(digests) == 1
    assert not asked.journal.exists()


def test_a_run_that_was_only_not_written_scores_nothing(tmp_path: Path) -> None:
    """Where every query is in the journal, the table is made of it alone, vectors and all."""
    asked = _asked(tmp_path, dense=True)
    stages = _stages()
    stages[StageName.SMALL] = ScriptedEmbedder(lambda query, text: 1.0, fingerprint=fingerprint("little"))
    with pytest.raises(asyncio.CancelledError):
        _run(asked, stages, interrupt_at=3)
    again = _stages()
    embedder = ScriptedEmbedder(lambda query, text: 1.0, fingerprint=fingerprint("little"))
    again[StageName.SMALL] = embedder
    told = _run(asked, again)
    assert told.scored == 3
    assert (embedder.embedded, again[StageName.LARGE].calls) == (0, [])


def test_another_release_does_not_go_on_with_the_journal(tmp_path: Path) -> None:
    """Scores of two models never share a column."""
    asked = _asked(tmp_path)
    with pytest.raises(asyncio.CancelledError):
        _run(asked, _stages(), interrupt_at=2)
    with pytest.raises(ConfigError, match="was begun with another scorers;"):
        _run(asked, _stages(fingerprint=fingerprint("bigger")))
    other = collection(digests={"corpus.jsonl": "sha256:3", "queries.jsonl": "sha256:2"})
    with pytest.raises(ConfigError, match="was begun with another corpus, depth;"):
        _run(replace(asked, depth=2, collection=other), _stages())


def test_weights_that_were_exchanged_do_not_go_on_with_the_journal(tmp_path: Path) -> None:
    """All that is declared may be as it was: of the vectors of the dense channel too."""

    def stages(large: str, embedder: str) -> dict[StageName, Stage]:
        small = ScriptedEmbedder(lambda query, text: 1.0, observed=Observed(weights_sha256=embedder * 64))
        return {**_stages(observed=Observed(weights_sha256=large * 64)), StageName.SMALL: small}

    asked = _asked(tmp_path, dense=True, columns={"large": StageName.LARGE})
    with pytest.raises(asyncio.CancelledError):
        _run(asked, stages("1", "2"), interrupt_at=2)
    for other in (stages("3", "2"), stages("1", "3")):
        with pytest.raises(ConfigError, match="was begun with another weights;"):
            _run(asked, other)
    _run(asked, stages("1", "2"))
    assert read_table(asked.out).conditions["weights"] == {"large": "1" * 64, "dense": "2" * 64}


def test_a_table_that_is_done_is_not_replaced(tmp_path: Path) -> None:
    """An hour's work is not lost to a command that was run twice."""
    asked = _asked(tmp_path)
    _run(asked, _stages())
    with pytest.raises(ConfigError, match=r"t\.parquet: is there already; remove it, or name another file$"):
        _run(asked, _stages())
    with pytest.raises(ConfigError, match=r"its folder is not there$"):
        _run(replace(asked, out=tmp_path / "no" / "t.parquet"), _stages())


class _Flaky(ScriptedStage):
    """Fail the first ``failures`` rounds for documents that have a word."""

    word = ""
    failures = 0
    kind: type[StageError] = StageTimeout

    async def score(self, query: Any, documents: Any, **options: Any) -> Any:
        """Fail, or score."""
        if self.failures and self.word in query.reveal():
            self.failures -= 1
            self.calls.append([])
            raise self.kind("large", "scripted", elapsed_ms=1, budget_ms=1)
        return await super().score(query, documents, **options)


def _flaky(word: str, failures: int, kind: type[StageError] = StageTimeout) -> _Flaky:
    stage = _Flaky(lambda query, text: 1.0, fingerprint=fingerprint("big"))
    stage.word, stage.failures, stage.kind = word, failures, kind
    return stage


def test_a_round_that_fails_is_tried_again(tmp_path: Path) -> None:
    """Two failures cost time and nothing else; the time told is that of the round that counted."""
    asked = _asked(tmp_path)
    stages = {**_stages(), StageName.LARGE: _flaky("lamp", 2)}
    told = _run(asked, stages)
    assert (told.failed, told.scored) == (0, 2)
    assert _column(read_table(asked.out), "q1", "ms_large") == [0.0] * 3


def test_a_query_that_keeps_failing_is_left_out_and_tried_by_the_next_run(tmp_path: Path) -> None:
    """The table has the rest, the reason is told, and the journal stays so that only this query is left to do."""
    asked = _asked(tmp_path)
    told = _run(asked, {**_stages(), StageName.LARGE: _flaky("lamp", 3, StageOverloaded)})
    assert (told.failed, told.scored, told.rows) == (1, 1, 1)
    assert told.reasons == ("large: stage_overloaded (scripted)",)
    table = read_table(asked.out)
    assert (table.query_ids, table.conditions["counts"]["failed"]) == (("q2",), 1)
    healthy = _stages()
    told = _run(asked, healthy)
    assert (told.failed, told.scored) == (0, 2)
    assert [len(texts) for texts in healthy[StageName.LARGE].calls] == [3]
    assert read_table(asked.out).query_ids == ("q1", "q2")
    assert not asked.journal.exists()


def test_a_stage_that_is_down_stops_the_run(tmp_path: Path) -> None:
    """After five queries in a row the rest is not tried, no table is written, and what is done is kept."""
    many = collection(queries={f"q{number}": "lamp" for number in range(40)}, judgements={})
    asked = _asked(tmp_path, many)
    stage = _flaky("lamp", 1000)
    told = _run(asked, {**_stages(), StageName.LARGE: stage})
    assert (told.failed, told.scored, told.rows) == (5, 0, 0)
    assert len(stage.calls) == 5 * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet.journal"]


def test_a_run_whose_every_query_fails_writes_no_table(tmp_path: Path) -> None:
    """Few queries that all fail end like many: counted, with the reason."""
    one = collection(queries={"q": "lamp"}, judgements={})
    told = _run(_asked(tmp_path, one), {**_stages(), StageName.LARGE: _flaky("lamp", 3)})
    assert (told.failed, told.rows, told.reasons) == (1, 0, ("large: stage_timeout (scripted)",))


def test_an_error_of_ours_comes_out_as_itself(tmp_path: Path) -> None:
    """A fault that no retry mends is not wrapped in a group, and is not counted as a query's."""
    with pytest.raises(ConfigError, match=r"^weights: wrong$"):
        _run(_asked(tmp_path), _stages(fails=ConfigError("weights: wrong")))


def test_queries_are_a_sample_that_grows() -> None:
    """A smaller number is the beginning of a larger one, only judged queries count, and none at all is an error."""
    many = collection(queries={f"q{number}": "lamp" for number in range(40)}, judgements={})
    assert choose_queries(many, 10) == choose_queries(many, 20)[:10]
    assert set(choose_queries(many, None)) == set(many.queries)
    assert choose_queries(many, 10) != tuple(many.queries)[:10]
    assert set(choose_queries(collection(), None)) == {"q1", "q2", "q3"}
    with pytest.raises(ConfigError, match=r"^dataset tiny: no query of queries\.jsonl is judged$"):
        choose_queries(collection(judgements={"other": {"a": 1}}), None)


def test_a_query_without_a_vector_is_left_out(tmp_path: Path) -> None:
    """A query that the embedding model cannot read fails alone, and says by which stage."""

    class Hollow(ScriptedEmbedder):
        async def vectors(self, texts: Any, *, queries: bool = False) -> Any:
            if queries and texts[0].reveal() == "zebra":
                raise StageInvalidAnswer("small", "not_a_number", elapsed_ms=1, budget_ms=1)
            return await super().vectors(texts, queries=queries)

    asked = _asked(tmp_path, dense=True)
    told = _run(asked, {**_stages(), StageName.SMALL: Hollow(lambda query, text: 1.0)})
    assert (told.scored, told.failed, told.reasons) == (2, 1, ("small: stage_invalid_answer (not_a_number)",))
    assert asked.vectors.exists()
