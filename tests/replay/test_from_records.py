"""Score tables of decision records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.replay.from_records import Counts, gather, table_from_records
from cascade.replay.table import ScoreTable, read_table, write_table
from cascade.types import StageName
from tests.replay.records import decision_line, head_line, scorer, write_records

_A, _B, _C = "a" * 16, "b" * 16, "c" * 16


def _records(folder: Path, *lines: Mapping[str, Any], name: str = "r.jsonl") -> Path:
    return write_records(folder / name, lines)


def _at(minute: int) -> str:
    return f"2026-11-29T00:{minute:02}:00.000+00:00"


def _counted(**changes: int) -> Counts:
    names = [
        "records",
        "queries",
        "incomplete",
        "recurring",
        "other_release",
        "other_server",
        "shadows",
        "torn",
        "strange",
        "headless",
        "of_cascade",
        "keys",
    ]
    return Counts(**{name: changes.get(name, 0) for name in names})


def _same(one: ScoreTable, other: ScoreTable) -> bool:
    return (
        (one.query_ids, one.doc_ids, dict(one.attributes)) == (other.query_ids, other.doc_ids, dict(other.attributes))
        and dict(one.conditions) == dict(other.conditions)
        and {name: values.tolist() for name, values in one.scores.items()}
        == {name: values.tolist() for name, values in other.scores.items()}
    )


def test_a_record_becomes_the_rows_of_a_query(tmp_path: Path) -> None:
    """A column for each channel and stage, first-stage ranks, tokens, times and what is known of the query."""
    path = _records(tmp_path, head_line(), decision_line(tenant="acme", q_class="identifier", q_identifiers=1))
    found = gather([path])
    table = found.table
    assert (table.query_ids, table.offsets.tolist()) == ((_A,), [0, 3])
    assert table.doc_ids == ("1" * 16, "2" * 16, "3" * 16)
    assert {name: values.tolist() for name, values in table.scores.items()} == {
        "bm25": [9.0, 8.0, 7.0],
        "small": [1.5, 0.5, -0.5],
        "large": [2.0, 3.0, 1.0],
    }
    assert table.rank_first is not None
    assert table.rank_first.tolist() == [1, 2, 3]
    assert (table.rel, table.grades) == (None, None)
    assert dict(table.attributes) == {
        "tokens": (10, 11, 12),
        "ms_small": (2.0,) * 3,
        "ms_large": (10.0,) * 3,
        "source": ("acme",) * 3,
        "q_tokens": (4,) * 3,
        "q_class": ("identifier",) * 3,
        "q_identifiers": (1,) * 3,
        "q_complete": (True,) * 3,
        "q_mode": ("observe",) * 3,
        "q_instruction": ("none",) * 3,
    }
    assert found.counts == _counted(records=1, queries=1, keys=1)
    assert found.channels_left_out == ()


def test_a_table_of_records_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The file has nothing that the reader of tables refuses, whole records or not."""
    lines = [head_line(), decision_line(), decision_line(query_hash=_B, depth=2, large=[None] * 3, rounds=[])]
    table = gather([_records(tmp_path, *lines)], complete=False).table
    write_table(tmp_path / "t.parquet", table)
    read = read_table(tmp_path / "t.parquet")
    assert read.query_ids == table.query_ids
    assert read.where("q_complete", "True").query_ids == (_A,)
    assert read.where("q_complete", "False").attributes["ms_large"] == (None, None)
    write_table(tmp_path / "u.parquet", gather([_records(tmp_path, *lines)]).table)
    assert _same(read_table(tmp_path / "u.parquet"), table_from_records([_records(tmp_path, *lines)]))


def test_conditions_have_the_form_that_collecting_gives_them(tmp_path: Path) -> None:
    """Fingerprints go by column under ``scorers``, with what the servers said, the releases, and from when to when."""
    served = {"model": "m", "version": "1.9"}
    heads = [
        head_line(),
        head_line(
            id="1" * 16,
            release="r2",
            release_digest="sha256:r2",
            scorers={"small": scorer("small", "little"), "large": scorer("large", "big", served)},
        ),
    ]
    lines = [decision_line(time=_at(1)), decision_line(time=_at(3), head="1" * 16, query_hash=_B)]
    conditions = gather(
        [_records(tmp_path, *heads, *lines)], columns={"little": StageName.SMALL, "large": StageName.LARGE}
    ).table.conditions
    assert conditions["scorers"] == {
        "little": {"stage": "small", "fingerprint": scorer("small", "little")["fingerprint"]},
        "large": {"stage": "large", "fingerprint": scorer("large", "big")["fingerprint"]},
    }
    assert conditions["observed"] == {"little": None, "large": served}
    assert [each["digest"] for each in conditions["releases"]] == ["sha256:r1", "sha256:r2"]
    assert conditions["times"] == {"began": "2026-11-29T00:01:00+00:00", "ended": "2026-11-29T00:03:00+00:00"}
    assert conditions["counts"]["queries"] == 2
    assert (conditions["format"], conditions["depth"]) == (1, 3)


def test_of_a_query_that_came_again_the_latest_record_stays(tmp_path: Path) -> None:
    """Whatever the order of files and lines, and the others are counted."""
    old = decision_line(time=_at(1), small=[0.0] * 3)
    new = decision_line(time=_at(2), small=[7.0] * 3)
    for name, lines in {"x": (old, new, old), "y": (new, old, old)}.items():
        found = gather([_records(tmp_path, head_line(), *lines, name=name)])
        assert found.table.scores["small"].tolist() == [7.0] * 3
        assert found.counts == _counted(records=3, queries=1, recurring=2, keys=1)
    other = {"head": "1" * 16, "time": _at(3), "small": [9.0] * 3}
    apart = _records(tmp_path, head_line(id="1" * 16, release_digest="sha256:r2"), decision_line(**other), name="z")
    found = gather([apart, tmp_path / "x"])
    assert found.table.scores["small"].tolist() == [9.0] * 3
    assert found.counts.recurring == 3


def test_only_complete_records_are_taken_unless_all_are_asked_for(tmp_path: Path) -> None:
    """Then the others have NaN where there is no score, and say so; those without a candidate have no row."""
    lines = [
        head_line(mode="cascade"),
        decision_line(),
        decision_line(query_hash=_B, large=[None, 3.0, None]),
        decision_line(query_hash=_C, depth=0),
    ]
    whole, every = (gather([_records(tmp_path, *lines)], complete=complete) for complete in (True, False))
    assert whole.table.query_ids == (_A,)
    assert whole.counts == _counted(records=3, queries=1, incomplete=2, of_cascade=1, keys=1)
    assert every.table.query_ids == (_A, _B)
    assert [str(score) for score in every.table.scores["large"][3:]] == ["nan", "3.0", "nan"]
    assert every.table.of_queries("q_complete") == (True, False)
    assert every.counts == _counted(records=3, queries=2, incomplete=2, of_cascade=1, keys=1)


def test_documents_that_a_stage_left_out_stay_without_a_score(tmp_path: Path) -> None:
    """They are rows like the others: the first stage found them."""
    line = decision_line(excluded=[1], small=[1.5, None, -0.5], large=[2.0, None, 1.0])
    table = table_from_records([_records(tmp_path, head_line(), line)])
    assert math.isnan(table.scores["small"][1])
    assert math.isnan(table.scores["large"][1])
    assert len(table.doc_ids) == 3


def test_channels_that_a_query_lacks_are_missing_there(tmp_path: Path) -> None:
    """A column is there as soon as one query has the channel."""
    lines = [head_line(), decision_line(), decision_line(query_hash=_B, channels={"dense": [0.5, None, 0.25]})]
    table = table_from_records([_records(tmp_path, *lines)])
    assert [str(score) for score in table.scores["bm25"]] == ["9.0", "8.0", "7.0", "nan", "nan", "nan"]
    assert [str(score) for score in table.scores["dense"]] == ["nan", "nan", "nan", "0.5", "nan", "0.25"]


def test_channels_that_are_called_like_something_else_are_left_out_and_named(tmp_path: Path) -> None:
    """A stage's column, a column of the table's own, and ranks, which tables turn round, are no channels."""
    names = ("small", "q_class", "ms_x", "rel", "tokens", "source", "bm25_rank")
    line = decision_line(channels={"bm25": [9.0, 8.0, 7.0]} | {name: [1.0, 2.0, 3.0] for name in names})
    found = gather([_records(tmp_path, head_line(), line)])
    assert found.channels_left_out == tuple(sorted(names))
    assert set(found.table.scores) == {"bm25", "small", "large"}


def test_a_document_that_a_request_had_twice_is_two_rows(tmp_path: Path) -> None:
    """The second is told apart, so that no pair is there twice."""
    line = decision_line(ids=["1" * 16, "2" * 16, "1" * 16])
    table = table_from_records([_records(tmp_path, head_line(), line)])
    assert table.doc_ids == ("1" * 16, "2" * 16, f"{'1' * 16}#2")


def test_records_of_different_models_are_refused_and_one_release_can_be_taken(tmp_path: Path) -> None:
    """The message names the releases by digest; taking one counts the others."""
    other = {"small": scorer("small", "little"), "large": scorer("large", "bigger")}
    lines = [
        head_line(),
        head_line(id="1" * 16, release="r2", release_digest="sha256:r2", scorers=other),
        decision_line(),
        decision_line(head="1" * 16, query_hash=_B),
        decision_line(head="1" * 16, query_hash=_C),
    ]
    path = _records(tmp_path, *lines)
    with pytest.raises(ConfigError) as raised:
        gather([path])
    assert str(raised.value) == (
        "records of stages with different fingerprints; take those of one release: "
        "sha256:r1 (r1): 1 queries, sha256:r2 (r2): 2 queries"
    )
    found = gather([path], release_digest="sha256:r2")
    assert found.table.query_ids == (_B, _C)
    assert found.table.conditions["scorers"]["large"]["fingerprint"]["model"] == "bigger"
    assert found.counts == _counted(records=2, queries=2, other_release=1, keys=1)


def test_a_head_written_before_there_was_a_mode_goes_with_one_that_says_there_is_none(tmp_path: Path) -> None:
    """It is the same stage; one in batches is not."""

    def with_mode(mode: str | None) -> dict[str, Any]:
        stages = {"small": scorer("small", "little"), "large": scorer("large", "big")}
        for each in stages.values():
            each["fingerprint"]["mode"] = mode
        return head_line(id="1" * 16, scorers=stages)

    before = head_line(scorers={"small": scorer("small", "little"), "large": scorer("large", "big")})
    lines = [decision_line(), decision_line(head="1" * 16, query_hash=_B)]
    assert len(gather([_records(tmp_path, before, with_mode(None), *lines)]).table.query_ids) == 2
    with pytest.raises(ConfigError, match="records of stages with different fingerprints"):
        gather([_records(tmp_path, before, with_mode("batches"), *lines)])


def test_releases_of_the_same_models_go_together(tmp_path: Path) -> None:
    """Scores do not depend on what is done with them."""
    lines = [
        head_line(),
        head_line(id="1" * 16, release_digest="sha256:r2", mode="cascade"),
        decision_line(),
        decision_line(head="1" * 16, query_hash=_B),
    ]
    found = gather([_records(tmp_path, *lines)])
    assert found.table.of_queries("q_mode") == ("observe", "cascade")
    assert found.counts.of_cascade == 1


def test_a_server_that_changed_makes_another_scorer_of_the_same_name(tmp_path: Path) -> None:
    """What its last state scored stays, and what was scored before it had said anything; the rest is counted."""

    def head(number: int, **observed: Any) -> dict[str, Any]:
        told = observed or None
        return head_line(id=str(number) * 16, scorers={"large": scorer("large", "big", told)})

    lines = [
        head(0),
        head(1, version="1.8", max_texts=32),
        head(2, version="1.9", max_texts=32),
        head(3, version="1.9", max_texts=64),
        *(
            decision_line(head=str(number) * 16, query_hash=f"{number}{'a' * 15}", time=_at(number))
            for number in range(4)
        ),
    ]
    found = gather([_records(tmp_path, *lines)])
    assert [name[0] for name in found.table.query_ids] == ["0", "2", "3"]
    assert found.counts.other_server == 1
    assert found.table.conditions["observed"]["large"] == {"version": "1.9", "max_texts": 64}


def test_weights_that_were_replaced_make_another_scorer_of_the_same_name(tmp_path: Path) -> None:
    """Records that were written before their digest was told go with any."""

    def head(number: int, **weights: str) -> dict[str, Any]:
        return head_line(id=str(number) * 16, scorers={"large": scorer("large", "big", {"model": "m", **weights})})

    lines = [
        head(0),
        head(1, weights_sha256="1" * 64),
        head(2, weights_sha256="2" * 64),
        *(
            decision_line(head=str(number) * 16, query_hash=f"{number}{'a' * 15}", time=_at(number))
            for number in range(3)
        ),
    ]
    found = gather([_records(tmp_path, *lines)])
    assert [name[0] for name in found.table.query_ids] == ["0", "2"]
    assert found.counts.other_server == 1


def test_records_that_tell_no_weights_let_no_others_in(tmp_path: Path) -> None:
    """A version that does not tell them may write again, after one that does: what is known last still holds."""

    def head(number: int, **weights: str) -> dict[str, Any]:
        return head_line(id=str(number) * 16, scorers={"large": scorer("large", "big", {"model": "m", **weights})})

    lines = [
        head(0, weights_sha256="1" * 64),
        head(1, weights_sha256="2" * 64),
        head(2),
        *(
            decision_line(head=str(number) * 16, query_hash=f"{number}{'a' * 15}", time=_at(number))
            for number in range(3)
        ),
    ]
    found = gather([_records(tmp_path, *lines)])
    assert [name[0] for name in found.table.query_ids] == ["1", "2"]
    assert found.counts.other_server == 1


def test_instructions_of_callers_are_told_apart(tmp_path: Path) -> None:
    """A reranker that follows instructions scores otherwise under another one, so that queries can be chosen by it."""
    lines = [head_line(), decision_line(instruction="d" * 16), decision_line(query_hash=_B)]
    table = table_from_records([_records(tmp_path, *lines)])
    assert table.where("q_instruction", "d" * 16).query_ids == (_A,)


def test_records_of_two_keys_are_told_of(tmp_path: Path) -> None:
    """The same query has two hashes then."""
    lines = [
        head_line(),
        head_line(id="1" * 16, key="f" * 16),
        decision_line(),
        decision_line(head="1" * 16, query_hash=_B),
    ]
    assert gather([_records(tmp_path, *lines)]).counts.keys == 2


@pytest.mark.parametrize(
    ("lines", "options", "told"),
    [
        ([head_line()], {}, "no record was found"),
        ([head_line(), decision_line()], {"release_digest": "x"}, "no record was found; 1 are of other releases"),
        (
            [head_line(), decision_line(large=[None] * 3)],
            {},
            "no record has the scores of both stages for every candidate; releases of mode observe make such records",
        ),
        ([head_line(), decision_line(depth=0)], {"complete": False}, "no record has a candidate within depth"),
    ],
)
def test_where_no_query_is_left_it_is_told_why(
    tmp_path: Path, lines: list[dict[str, Any]], options: dict[str, Any], told: str
) -> None:
    """No table of nothing is made."""
    with pytest.raises(ConfigError) as raised:
        gather([_records(tmp_path, *lines)], **options)
    assert str(raised.value) == told
