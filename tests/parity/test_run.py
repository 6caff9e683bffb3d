"""A run from beginning to end: sides of every kind, refusals, and what the report holds."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cascade.errors import ConfigError, StageError, StageOverloaded, StageRefused, StageUnreachable
from cascade.parity.assemble import Question
from cascade.parity.contrast_texts import CASES
from cascade.parity.gather import Gathered, of_tables
from cascade.parity.lists import CandidateList
from cascade.parity.live import Live, examine
from cascade.parity.report import BUILT_IN, parity_report
from cascade.parity.spaces import Spaces
from cascade.parity.tolerances import Tolerances, checks
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.types import ScoreSpace
from tests.parity.arrange import BentStage, compared, failed, hashed, lists_of, named, source, table

_NOISY = (
    "CAND answers equal calls differently: errors are those of means over 3 runs, and what their own noise explains "
    "is no error"
)


def _tables(noise: float, queries: int = 12) -> tuple[Gathered, Any, Any]:
    random = np.random.default_rng(2)
    ref = random.normal(0.0, 2.0, 20 * queries)
    whole = table(
        {"ref": ref.tolist(), "cand": (ref + noise * random.normal(size=ref.size)).tolist()},
        queries,
        rel=(ref > 1.0).astype(np.int64),
        attributes={"ms_ref": (4.0,) * ref.size, "ms_cand": (2.0,) * ref.size},
    )
    sides = source(whole, "ref"), source(whole, "cand")
    return of_tables(*sides, None, None, 64), *sides


def test_two_tables_are_compared_without_a_call() -> None:
    """Errors, orders, quality and speed are there; what only calls can tell is not measured."""
    gathered, ref, cand = _tables(0.001)
    found = compared(ref, cand, gathered, Spaces(None, None))
    assert failed(found) == set()
    assert named(found, "max_error").limit == pytest.approx(0.02 * found.compared.ref_sd)
    assert {name for name in ("jitter", "contrast_lost", "token_mismatch") if named(found, name).passed is None} == {
        "jitter",
        "contrast_lost",
        "token_mismatch",
    }
    report = parity_report(found, checks(found, Tolerances()), Question(), "t.parquet and t.parquet")
    assert report["ref"]["column"] == "ref"
    assert report["gain"]["speed"]["median"] == 2.0
    assert report["gain"]["memory_bytes"] is None
    assert report["cand"]["reasons"]["memory_bytes"] == "a table: nothing was scored anew"


def test_a_table_that_errs_is_outside() -> None:
    """Noise of a quarter of the spread keeps neither errors nor orders."""
    gathered, ref, cand = _tables(0.5)
    assert {"max_error", "mean_error", "kendall", "overlap"} <= failed(
        compared(ref, cand, gathered, Spaces(None, None))
    )


def test_ranks_are_compared_as_orders() -> None:
    """A column of ranks has no error and no space."""
    gathered, ref, cand = _tables(0.001)
    found = compared(ref, cand, gathered, Spaces(None, None, ranks=True))
    assert named(found, "max_error").reason == "a side holds ranks, not scores"
    assert named(found, "score_space").passed is None
    assert named(found, "kendall").passed is True


def test_a_table_beside_a_stage_compares_the_table_with_fresh_scores() -> None:
    """The stage scores the table's documents; contrasts are the stage's alone."""
    gathered = lists_of(12)
    kept = {
        item.id: np.array([[hashed(item.query or "", text) for text in item.documents or ()]])
        for item in gathered.lists
    }
    whole = table({"ref": [0.0] * 12}, 12)
    found = compared(source(whole, "ref"), ScriptedStage(hashed), replace(gathered, ref=kept))
    assert failed(found) == set()
    assert found.built_in is None
    assert found.contrast_lost is None
    assert found.contrasts is not None
    assert {item.ref_margin for item in found.contrasts} == {None}
    assert all(item.cand_margin is not None for item in found.contrasts)


def test_few_queries_are_refused_unless_they_are_allowed() -> None:
    """The error tells how many there are and what to do."""
    with pytest.raises(ConfigError, match="only 3 queries can be compared, and fewer than 10 say little; --allow-few"):
        compared(ScriptedStage(hashed), ScriptedStage(hashed), lists_of(3))
    assert compared(ScriptedStage(hashed), ScriptedStage(hashed), lists_of(3), allow_few=True).coverage.queries == 3


def test_a_server_that_cannot_be_used_is_told_before_anything_is_scored() -> None:
    """With the side's name."""
    ref = ScriptedStage(hashed)
    with pytest.raises(ConfigError, match="REF: its server cannot be used: not_a_reranker"):
        compared(replace(ref, unusable="not_a_reranker"), ref)
    assert ref.calls == []


def test_a_side_that_does_not_answer_ends_the_run() -> None:
    """At its first calls."""
    with pytest.raises(ConfigError, match=r"CAND: does not score: stage_unreachable \(scripted\)"):
        compared(ScriptedStage(hashed), ScriptedStage(hashed, fails=StageUnreachable))


def test_five_failures_in_a_row_end_the_run() -> None:
    """A server that went away is not asked for the rest."""
    cand = BentStage(hashed, lost=lambda query: StageOverloaded if query.startswith("query") else None)
    with pytest.raises(ConfigError, match=r"CAND: 5 queries in a row failed: stage_overloaded \(scripted\)"):
        compared(ScriptedStage(hashed), cand, lists_of(12))


def test_nothing_in_common_is_an_error() -> None:
    """CAND refuses everything but what the built-in texts hold."""
    known = {text for case in CASES for text in (case.good, case.bad)}
    cand = ScriptedStage(hashed, refuses=lambda text: text not in known)
    with pytest.raises(ConfigError, match="no pair was scored by both sides"):
        compared(ScriptedStage(hashed), cand, lists_of(12))


def test_token_ids_are_compared_where_both_sides_read_here() -> None:
    """A serializer that joins white space reads another sequence; the first difference is told by place."""
    ref = Live(ScriptedStage(hashed), lambda query, text: (1, len(text), 2))
    cand = Live(ScriptedStage(hashed), lambda query, text: (1, min(len(text), 100), 2))
    found = compared(ref, cand)
    assert found.tokens is not None
    assert found.tokens.kind == "ids"
    assert found.tokens.first is not None
    assert found.tokens.first[2] == 1
    assert 0.0 < (found.token_mismatch or 0.0) < 1.0
    assert "token_mismatch" in failed(found)
    assert "token_mismatch" not in failed(found, max_token_mismatch=1.0)


def test_the_report_is_plain_and_holds_no_text() -> None:
    """JSON without NaN; no word of a query or document, and no address."""
    gathered = lists_of(12, text="confidential words")
    found = compared(ScriptedStage(hashed), ScriptedStage(lambda query, text: hashed(query, text) * 2), gathered)
    report = parity_report(found, checks(found, Tolerances()), Question(), "mine")
    written = json.dumps(report, allow_nan=False)
    assert json.loads(written) == report
    assert not any(text in written for text in ("confidential", CASES[0].good, CASES[0].query, CASES[4].query))
    assert (report["version"], report["passed"]) == (1, False)
    assert report["score_space"]["found"] == "y = a x + b"
    assert report["score_space"]["fits"]["y = a x + b"]["slope"] == pytest.approx(2.0)
    assert report["quality"]["ndcg"]["delta"] == 0.0
    assert report["built_in"]["agreement"]["queries"] == 20
    assert {check["name"] for check in report["checks"]} >= {"max_error", "kendall", "score_space"}
    assert "a = 2 and b = " in " ".join(report["notes"])


def test_built_in_pairs_alone_are_told_to_be_few() -> None:
    """No dataset and no table."""
    found = compared(ScriptedStage(hashed), ScriptedStage(hashed))
    report = parity_report(found, checks(found, Tolerances()), Question(), BUILT_IN)
    assert report["notes"] == ["only built-in pairs were compared; name a --dataset of your own texts"]
    assert report["built_in"] is None
    assert report["coverage"]["queries"] == 20


def test_errors_within_the_references_own_jitter_are_told_to_show_nothing() -> None:
    """REF moves with its mates by more than CAND differs."""

    def mates(query: str, texts: Any, scores: list[float]) -> list[float]:
        return [score + 0.03 * (len(scores) % 4) for score in scores]

    cand = ScriptedStage(lambda query, text: hashed(query, text) + 0.02)
    found = compared(BentStage(hashed, bend=mates), cand, lists_of(12))
    report = parity_report(found, checks(found, Tolerances()), Question(), "mine")
    assert any("REF itself moves by 0.03 over repeats and batches" in note for note in report["notes"])


def test_progress_and_memory_are_told() -> None:
    """Memory of a model that runs here is what the process has more of; of an endpoint it is not known."""
    told: list[tuple[str, int, int]] = []
    memory = iter([1000, 5000, 5000, 6000])

    async def go(live: Live) -> int | None:
        done = await examine(
            live,
            "REF",
            lists_of(2).lists,
            max_length=64,
            runs=2,
            clock=asyncio.get_running_loop().time,
            resident=lambda: next(memory),
            progress=lambda what, done, total: told.append((what, done, total)),
        )
        return done.bytes

    assert run_virtual(go(Live(ScriptedStage(hashed), lambda query, text: (1,)))) == 4000
    assert told == [("REF scores", done, 4) for done in (1, 2, 3, 4)]
    assert run_virtual(go(Live(ScriptedStage(hashed)))) is None


@pytest.mark.parametrize("space", [ScoreSpace.LOGIT, ScoreSpace.PROBABILITY, ScoreSpace.COSINE])
def test_the_limit_of_jitter_is_in_the_candidates_own_space(space: ScoreSpace) -> None:
    """Where errors are told in another one, or in none."""
    found = compared(ScriptedStage(hashed), ScriptedStage(hashed), spaces=Spaces(ScoreSpace.PROBABILITY, space))
    limits = {ScoreSpace.LOGIT: 0.1, ScoreSpace.PROBABILITY: 0.02, ScoreSpace.COSINE: 0.01}
    assert named(found, "jitter").limit == limits[space]
    assert named(found, "jitter", max_jitter=0.7).limit == 0.7


def test_what_was_left_out_is_told_in_words() -> None:
    """Failed queries, pairs that neither side scored, queries of one side, queries without candidates, and noise."""
    random = np.random.default_rng(1)
    noisy = BentStage(
        hashed,
        refuses=lambda text: text.endswith("aa"),
        lost=lambda query: StageRefused if query == "query da" else None,
        bend=lambda query, texts, scores: (np.array(scores) + random.normal(0, 0.001, len(scores))).tolist(),
    )
    gathered = replace(lists_of(12), queries_only_cand=3, without_candidates=2)
    found = compared(ScriptedStage(hashed, refuses=lambda text: text.endswith("aa")), noisy, gathered)
    report = parity_report(found, checks(found, Tolerances()), Question(), "mine")
    assert report["notes"] == [
        "12 pairs have a score at REF and none at CAND; the first is query q3, document d0",
        "3 queries are at CAND alone",
        "1 pairs have a score at neither side",
        "2 queries have no candidate",
        "CAND failed 1 queries: stage_refused (scripted)",
        _NOISY,
    ]
    assert report["coverage"]["neither"] == 1
    assert report["cand"]["failed"] == {"q3": "stage_refused (scripted)"}


def test_a_refusal_is_not_asked_again() -> None:
    """It would be refused again; what may pass is tried three times."""
    asked: list[str] = []

    def lost(query: str) -> type[StageError] | None:
        asked.append(query)
        return {"query aa": StageRefused, "query ba": StageOverloaded}.get(query)

    compared(ScriptedStage(hashed), BentStage(hashed, lost=lost), lists_of(12))
    assert (asked.count("query aa"), asked.count("query ba"), asked.count("query ca")) == (1, 3, 1)


def test_what_is_not_gathered_is_a_mistake_of_ours() -> None:
    """A table without its pairs, and a stage without text."""
    side = source(table({"a": [1.0, 2.0]}, 1), "a")
    with pytest.raises(ValueError, match="gathered before"):
        compared(side, side)
    bare = Gathered((CandidateList("q", ("d",)),), of_queries=1)
    with pytest.raises(ValueError, match="lists that have text"):
        compared(ScriptedStage(hashed), ScriptedStage(hashed), bare, allow_few=True)
