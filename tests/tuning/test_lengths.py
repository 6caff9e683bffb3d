"""Lengths of a user's pairs, and texts of these lengths."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from cascade.errors import ConfigError
from cascade.tokens import PAIR_OVERHEAD_TOKENS
from cascade.tuning.length_sources import (
    lengths_of_file,
    lengths_of_pairs,
    lengths_of_records,
    lengths_of_table,
    read_pairs,
)
from cascade.tuning.lengths import MOST_SAMPLES, LengthSamples, RequestLengths
from cascade.tuning.texts import Words
from tests.replay.records import decision_line, head_line, write_records

_TOKENIZER = Path(__file__).parents[1] / "fixtures" / "models" / "micro-ce" / "tokenizer.json"


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_lengths_is_read(tmp_path: Path) -> None:
    """Two numbers a line, by blanks or a comma, with remarks and empty lines between."""
    path = _written(tmp_path / "a.txt", "# of last week\n5 120\n\n7,300  # long\n")
    assert lengths_of_file(path, 0).pairs == ((5, 120), (7, 300))


@pytest.mark.parametrize("line", ["5", "5 6 7", "a 6", "-5 6", "6 6", "0 6", "5 1.5", "5 99999999999", "5 1000001"])
def test_a_line_that_is_no_length_is_named(tmp_path: Path, line: str) -> None:
    """The file and the number of the line are told."""
    path = _written(tmp_path / "a.txt", f"5 9\n{line}\n")
    with pytest.raises(ConfigError, match=r"a\.txt: line 2: "):
        lengths_of_file(path, 0)


def test_an_empty_file_tells_nothing(tmp_path: Path) -> None:
    """A source without a pair is refused."""
    with pytest.raises(ConfigError, match=r"lengths a\.txt: it tells no length of a pair"):
        lengths_of_file(_written(tmp_path / "a.txt", "# nothing\n"), 0)
    with pytest.raises(ConfigError, match="cannot be read: FileNotFoundError"):
        lengths_of_file(tmp_path / "none.txt", 0)


def test_pairs_of_text_are_counted_and_never_quoted(tmp_path: Path) -> None:
    """Documents by query; what is no pair is told by its line alone."""
    pairs = read_pairs(_written(tmp_path / "p.tsv", "one two\ta b c\none two\td\n\nthree\te f\n"))
    assert pairs == {"one two": ["a b c", "d"], "three": ["e f"]}
    samples = lengths_of_pairs(Path("p.tsv"), pairs, lambda text: len(text.split()), 0)
    assert samples.pairs == tuple(
        (query, query + document + PAIR_OVERHEAD_TOKENS) for query, document in ((2, 3), (2, 1), (1, 2))
    )
    with pytest.raises(ConfigError) as told:
        read_pairs(_written(tmp_path / "p.tsv", "one two\ta b c\nsecret words without a tab\n"))
    assert "line 2" in str(told.value)
    assert "secret" not in str(told.value)
    for odd in ("q\t \n", " \td\n", "\n"):
        with pytest.raises(ConfigError, match="pairs "):
            read_pairs(_written(tmp_path / "p.tsv", odd))
    (tmp_path / "p.tsv").write_bytes(b"\xff\xfe\t\xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_pairs(tmp_path / "p.tsv")


def test_a_large_source_is_sampled() -> None:
    """No more pairs are kept than is needed, from all of the source alike, the same ones every time."""
    total = 3 * MOST_SAMPLES
    samples = LengthSamples.of("s", ((1, 2 + number) for number in range(total)), 5)
    assert len(samples.pairs) == MOST_SAMPLES
    assert samples == LengthSamples.of("s", ((1, 2 + number) for number in range(total)), 5)
    mean = sum(pair for _, pair in samples.pairs) / MOST_SAMPLES
    assert mean == pytest.approx(total / 2, rel=0.01)


def test_quantiles_are_lengths_that_there_are() -> None:
    """Of ten lengths, the median is the fifth, and the ends are the ends."""
    told = LengthSamples("s", tuple((number, 10 * number) for number in range(1, 11))).told()
    assert (told.samples, told.query_tokens.q0, told.query_tokens.q50, told.query_tokens.q100) == (10, 1, 5, 10)
    assert (told.pair_tokens.q25, told.pair_tokens.q90, told.pair_tokens.q99) == (30, 90, 100)


def test_requests_are_drawn_by_seed() -> None:
    """As many documents as asked, of lengths that occur, none beyond what is read."""
    samples = LengthSamples("s", ((5, 5 + PAIR_OVERHEAD_TOKENS + 20), (700, 700 + PAIR_OVERHEAD_TOKENS + 900)))
    drawn = list(samples.requests((3, 50), 1, 512))
    assert [len(each.documents) for each in drawn] == [3, 50]
    assert {length for each in drawn for length in each.documents} == {20, 512}
    assert {each.query for each in samples.requests((1,) * 50, 1, 512)} == {5, 512}
    assert drawn == list(samples.requests((3, 50), 1, 512))
    assert drawn != list(samples.requests((3, 50), 2, 512))
    assert samples.mean_pair(512) == pytest.approx((5 + PAIR_OVERHEAD_TOKENS + 20 + 512) / 2)


def test_texts_have_the_tokens_asked_for() -> None:
    """By the tokenizer's own count, within one word; no two texts are the same."""
    tokenizer = tokenizers.Tokenizer.from_file(str(_TOKENIZER))
    tokenizer.no_truncation()

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    words = Words.counted_by(count)
    draw = random.Random(1)  # noqa: S311
    widest = max(words.tokens)
    for tokens in (1, 7, 40, 300):
        had = count(words.text(tokens, draw))
        assert tokens - widest < had <= max(tokens, widest)
    request = words.request(RequestLengths(6, (30,) * 40), draw)
    assert len(set(request.documents)) == 40
    assert 6 - widest < count(request.query.reveal()) <= max(6, widest)


def test_words_of_several_tokens_do_where_there_are_no_others() -> None:
    """A tokenizer of characters: texts stop short of a word at most."""
    words = Words.counted_by(len, "water light house road river sea boat ship wood stone")
    assert min(words.tokens) > 1
    draw = random.Random(3)  # noqa: S311
    assert 44 < len(words.text(50, draw)) <= 51


def test_a_tokenizer_without_words_is_refused() -> None:
    """Nothing could be made with it."""
    with pytest.raises(ConfigError, match="gives words no tokens"):
        Words.counted_by(lambda text: 0)


def test_records_tell_lengths(tmp_path: Path) -> None:
    """Every candidate of every request, from a file or a folder of files."""
    first = decision_line(decision_id="a", q_tokens=4, tokens=[20, 30, 40])
    second = decision_line(decision_id="b", q_tokens=6, tokens=[50, 60, 70])
    write_records(tmp_path / "records.jsonl", [head_line(), first])
    write_records(tmp_path / "records.jsonl.1", [head_line(), second])
    expected = ((4, 20), (4, 30), (4, 40), (6, 50), (6, 60), (6, 70))
    assert lengths_of_records([tmp_path], 0).pairs == expected
    assert lengths_of_records([tmp_path / "records.jsonl"], 0).pairs == expected[:3]
    told = lengths_of_records([tmp_path, *[tmp_path / "records.jsonl"] * 60], 0).told()
    assert told.source == f"records {tmp_path.name} and 60 more"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="there is no file in it"):
        lengths_of_records([tmp_path / "empty"], 0)
    with pytest.raises(ConfigError, match=r"records none: it tells|none: cannot be read"):
        lengths_of_records([tmp_path / "none"], 0)


def test_a_score_table_tells_lengths(tmp_path: Path) -> None:
    """Its columns q_tokens and tokens; a table without them is refused by their names."""
    columns = {"query_id": ["q", "q"], "doc_id": ["a", "b"], "small": [1.0, 0.5]}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns | {"q_tokens": [4, 4], "tokens": [30, 50]}), path)
    assert lengths_of_table(path, 0).pairs == ((4, 30), (4, 50))
    pq.write_table(pa.table(columns | {"q_tokens": [4, None], "tokens": [30, 50]}), path)
    assert lengths_of_table(path, 0).pairs == ((4, 30),)
    pq.write_table(pa.table(columns | {"tokens": [30, 50]}), path)
    with pytest.raises(ConfigError, match=r"it has no column q_tokens$"):
        lengths_of_table(path, 0)
