"""What a model reads: sides tokenised apart and kept give what the tokenizer gives for the pair; windows miss nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers, processors

from cascade.errors import ConfigError
from cascade.policy.release import EmbeddingStage, OnnxStage
from cascade.policy.stage_specs import Windows
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.engine.readers import JointReader, PairReader, pair_reader, text_reader
from cascade.stages.engine.template import kept_of, measured_template
from cascade.stages.engine.token_cache import Side, TokenCache
from cascade.stages.engine.windows import window_starts
from cascade.stages.weights import find_model

_MICRO: Final = Path(__file__).parents[2] / "fixtures" / "models" / "micro-ce" / "tokenizer.json"
_LENGTH: Final = 32
_WORDS: Final = [
    "the",
    "keeper",
    "trims",
    "a",
    "lamp",
    "and",
    "writes",
    "in",
    "his",
    "log",
    "of",
    "tides",
    "winds",
    "Straße",
    "灯台",
    "등대",
    "маяк",
    "🗼",
    "[SEP]",
    ",",
    ".",
    ";",
    "—",
    "́",
    "\n",
    "\t",
]
_text = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(_WORDS), max_size=70).map(" ".join),
)


def _packaged() -> Path:
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    return find_model(large.weights).tokenizer


@pytest.fixture(scope="module", params=["micro-ce", "packaged"])
def file(request: pytest.FixtureRequest) -> Path:
    """Give the file of a tokenizer: that of the fixture, and that of the default release."""
    return _MICRO if request.param == "micro-ce" else _packaged()


@pytest.fixture(scope="module")
def joint(file: Path) -> tokenizers.Tokenizer:
    """Give the tokenizer that reads pairs whole."""
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LENGTH, strategy="longest_first")
    return tokenizer


@pytest.fixture(scope="module")
def apart(file: Path) -> PairReader:
    """Give what reads sides apart and keeps documents."""
    reader = pair_reader(file, max_length=_LENGTH, cached_bytes=5_000)
    assert isinstance(reader, PairReader)
    return reader


@settings(deadline=None, max_examples=100)
@given(query=_text, document=_text)
def test_sides_read_apart_are_the_pair_read_whole(
    joint: tokenizers.Tokenizer, apart: PairReader, query: str, document: str
) -> None:
    """Ids, segment ids, whether anything was cut and how long it was before are the tokenizer's own, kept or not."""
    whole = joint.encode(query, document)
    shared = apart.query(query)
    for _ in range(2):  # the second comes from what was kept
        (tokens,), truncated, length, _ = apart.read(shared, document)
        assert tokens.ids.tolist() == whole.ids
        assert tokens.type_ids.tolist() == whole.type_ids
        assert truncated == bool(whole.overflowing)
        assert length is not None
        assert length > _LENGTH if whole.overflowing else length == len(whole.ids)
        assert repr(tokens) == f"Tokens(<{len(whole.ids)} ids>)"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40))
def test_what_both_sides_keep_is_what_the_tokenizer_keeps(query: int, document: int, room: int) -> None:
    """The longer side is cut first, for every length of both and every room."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"w": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(room, strategy="longest_first")
    sides = tokenizer.encode("w " * query, "? " * document).ids
    assert kept_of(query, document, room) == (sides.count(0), sides.count(1))


def test_a_tokenizer_that_does_more_than_join_reads_pairs_whole(tmp_path: Path) -> None:
    """Where the sides of a pair come out otherwise than joined, nothing is kept, and windows are refused."""
    tokenizer = tokenizers.Tokenizer.from_file(str(_MICRO))
    tokenizer.post_processor = processors.TemplateProcessing("$A", "$B $A", [])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    reader = pair_reader(tmp_path / "tokenizer.json", max_length=_LENGTH, cached_bytes=5_000)
    assert isinstance(reader, JointReader)
    (tokens,), truncated, *told = reader.read(reader.query("lamp"), "log " * 100)
    assert told == [None, None]
    tokenizer.enable_truncation(_LENGTH)
    assert tokens.ids.tolist() == tokenizer.encode("lamp", "log " * 100).ids
    assert truncated
    with pytest.raises(ConfigError, match="windows: this tokenizer does more than join"):
        pair_reader(tmp_path / "tokenizer.json", max_length=_LENGTH, windows=Windows())


@pytest.mark.parametrize(
    "post",
    [
        None,
        processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.TemplateProcessing("$A [SEP]", "$A:1 [SEP]:1 $B:0 [SEP]:1", [("[SEP]", 3)]),
    ],
    ids=["none", "roberta", "bert", "template"],
)
def test_any_way_of_joining_is_read_off(tmp_path: Path, post: processors.PostProcessor | None) -> None:
    """Two separators, none, and segment ids of any kind are those of the tokenizer."""
    tokenizer = tokenizers.Tokenizer.from_file(str(_MICRO))
    if post is None:
        plain = tokenizers.Tokenizer(tokenizer.model)
        plain.normalizer = normalizers.BertNormalizer()
        plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer = plain
    else:
        tokenizer.post_processor = post
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    reader = pair_reader(tmp_path / "tokenizer.json", max_length=_LENGTH)
    assert isinstance(reader, PairReader)
    tokenizer.enable_truncation(_LENGTH)
    for query, document in (("lamp", "the log"), ("lamp " * 30, "log " * 40)):
        whole = tokenizer.encode(query, document)
        (tokens,), *_ = reader.read(reader.query(query), document)
        assert (tokens.ids.tolist(), tokens.type_ids.tolist()) == (whole.ids, whole.type_ids)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    """Garbage in tokenizer.json is a configuration error."""
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        pair_reader(tmp_path / "tokenizer.json", max_length=_LENGTH)


def test_single_texts_are_read_as_the_tokenizer_reads_them() -> None:
    """A bi-encoder's text is cut at the window, its special tokens kept."""
    small = load_release(default_release_path(), {}).release.stages.small
    assert isinstance(small, EmbeddingStage)
    file = find_model(small.weights).tokenizer
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LENGTH)
    for text in ("a lamp", "oil " * 100):
        (tokens,), truncated, *_ = text_reader(file, _LENGTH).read(None, text)
        assert tokens.ids.tolist() == tokenizer.encode(text).ids
        assert truncated == (len(text) > 100)


@settings(deadline=None, max_examples=60)
@given(query=_text, document=_text, most=st.sampled_from([2, 4]), overlap=st.sampled_from([0, 5]))
def test_windows_cover_the_document(
    joint: tokenizers.Tokenizer, file: Path, query: str, document: str, most: int, overlap: int
) -> None:
    """The first is the pair as it is cut without windows; together they hold the document from its beginning, in order."""
    reader = _windowed(file, most, overlap)
    inputs, truncated, *_ = reader.read(reader.query(query), document)
    assert inputs[0].ids.tolist() == joint.encode(query, document).ids
    assert 1 <= len(inputs) <= most
    assert len({len(tokens) for tokens in inputs}) == 1
    if not joint.encode(query, document).overflowing:
        assert (len(inputs), truncated) == (1, False)


_READERS: Final[dict[tuple[Path, int, int], PairReader]] = {}


def _windowed(file: Path, most: int, overlap: int) -> PairReader:
    """Return a reader of windows, loaded once."""
    key = (file, most, overlap)
    if key not in _READERS:
        made = pair_reader(file, max_length=_LENGTH, windows=Windows(most=most, overlap_tokens=overlap))
        assert isinstance(made, PairReader)
        _READERS[key] = made
    return _READERS[key]


@given(st.integers(0, 300), st.integers(1, 60), st.integers(2, 8), st.integers(0, 80))
def test_window_starts(length: int, width: int, most: int, overlap: int) -> None:
    """Windows begin at 0, overlap as told but for the last, and end at the document's end unless there are too many."""
    starts = window_starts(length, width, Windows(most=most, overlap_tokens=overlap))
    assert starts[0] == 0
    assert len(starts) <= most
    step = width - min(overlap, width // 2)
    for one, following in pairwise(starts):
        assert one < following <= one + step
    assert all(following == one + step for one, following in pairwise(starts[:-1]))
    if len(starts) < most:
        assert starts[-1] + width >= length
    assert length <= width or starts[-1] + width <= length


def test_without_windows_a_document_is_its_beginning() -> None:
    """No window beyond the first is read where there are none, and none of nothing."""
    assert window_starts(100, 10, None) == [0]
    assert window_starts(5, 10, Windows()) == [0]


def test_a_query_that_leaves_half_is_clipped_as_ever(file: Path) -> None:
    """Beside a long query each window of the document has half of the room; the longer side has the odd token."""
    reader = _windowed(file, 4, 4)
    inputs, truncated, *_ = reader.read(reader.query("lamp " * 50), "log " * 30)
    assert truncated  # the query is
    room = _LENGTH - 3
    assert [len(tokens) for tokens in inputs] == [_LENGTH] * len(inputs)
    segments = [int(tokens.type_ids.sum()) for tokens in inputs]
    assert segments == [room // 2 + 1] * len(inputs)  # with the separator behind the document
    assert len(inputs) > 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=40), st.integers(0, 2000))
def test_the_token_cache_stays_within_its_bytes(puts: list[tuple[int, int]], most: int) -> None:
    """After any puts it holds no more bytes than allowed, the newest first, and gives back what was put."""
    cache = TokenCache(most)
    last: dict[bytes, int] = {}
    for number, size in puts:
        key = TokenCache.key(str(number))
        cache.put(key, Side(np.arange(size, dtype=np.int32), size + 1))
        last.pop(key, None)
        last[key] = size
        assert cache.bytes <= most
    kept = {key: size for key in last if (side := cache.get(key)) is not None and (size := side.length - 1) >= 0}
    assert cache.bytes == sum(size * 4 + 400 for size in kept.values())
    assert len(cache) == len(kept)
    if last and (newest := next(reversed(last))) not in kept:
        assert last[newest] * 4 + 400 > most


@pytest.mark.parametrize("max_length", [16, 64])
def test_measuring_how_sides_are_joined_makes_no_more_pieces_than_it_takes(file: Path, max_length: int) -> None:
    """A tokenizer keeps what it cuts off, of two long sides in a number of pieces that grows with the square."""
    cutting, sides = tokenizers.Tokenizer.from_file(str(file)), tokenizers.Tokenizer.from_file(str(file))
    cutting.no_padding()
    cutting.enable_truncation(max_length, strategy="longest_first")
    sides.no_padding()
    sides.no_truncation()
    pieces: list[int] = []

    class Counting:
        def encode(self, query: str, document: str) -> tokenizers.Encoding:
            encoding = cutting.encode(query, document)
            pieces.append(len(encoding.overflowing))
            return encoding

    assert measured_template(Counting(), sides, max_length) is not None  # type: ignore[arg-type]
    assert 0 < max(pieces) < 2000
