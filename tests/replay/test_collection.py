"""Collections in BEIR's layout."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.replay.collection import load_collection
from evals.first_stage import shared_data

_SECRET = "kingfisher"


def _folder(folder: Path, **files: bytes) -> Path:
    """Write a small collection, with some files as given; an empty one is left out."""
    whole = {
        "corpus": b'{"_id": "d1", "title": "Boats", "text": "They float."}\n{"_id": "d2", "text": "Bread."}\n',
        "queries": b'{"_id": "q1", "text": "boats"}\n{"_id": "q2", "text": "bread"}\n',
        "qrels": b"query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq9\td9\t-1\n",
        **files,
    }
    names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.tsv"}
    for name, content in whole.items():
        if content:
            (folder / names[name]).write_bytes(content)
    return folder


def test_a_collection_is_read_whole(tmp_path: Path) -> None:
    """Title and text are joined, grades are numbers by query and document, and each file has its digest."""
    collection = load_collection(_folder(tmp_path))
    assert collection.name == tmp_path.name
    assert collection.documents == {"d1": "Boats They float.", "d2": "Bread."}
    assert collection.queries == {"q1": "boats", "q2": "bread"}
    assert collection.judgements == {"q1": {"d1": 2, "d2": 0}, "q9": {"d9": -1}}
    written = (tmp_path / "corpus.jsonl").read_bytes()
    assert collection.digests["corpus.jsonl"] == f"sha256:{hashlib.sha256(written).hexdigest()}"
    assert collection.digests.keys() == {"corpus.jsonl", "queries.jsonl", "qrels.tsv"}


def test_judgements_are_optional_unless_named(tmp_path: Path) -> None:
    """Without a file there are none; a file that is asked for must be there."""
    folder = _folder(tmp_path, qrels=b"")
    assert load_collection(folder).judgements == {}
    with pytest.raises(ConfigError, match=r"other\.tsv: cannot be read: FileNotFoundError$"):
        load_collection(folder, folder / "other.tsv")


def test_judgements_lie_beside_or_in_beirs_own_folder(tmp_path: Path) -> None:
    """BEIR keeps the test judgements under qrels/, and an option names another file."""
    folder = _folder(tmp_path, qrels=b"")
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t3\n")
    (folder / "dev.tsv").write_text("q2\td2\t1\n")
    assert load_collection(folder).judgements == {"q1": {"d1": 3}}
    assert load_collection(folder, folder / "dev.tsv").judgements == {"q2": {"d2": 1}}


def test_ids_with_quotes_and_numbers_and_odd_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    """No quoting rule applies to judgements, numeric ids become text, and blank lines and a BOM do not count."""
    folder = _folder(
        tmp_path,
        corpus=b'\xef\xbb\xbf{"_id": 7, "title": null, "text": ""}\r\n\n{"_id": "\\"x", "text": "y"}',
        qrels=b'q1\t"x\t1\r\n',
    )
    collection = load_collection(folder)
    assert collection.documents == {"7": "", '"x': "y"}
    assert collection.judgements == {"q1": {'"x': 1}}


def test_halves_of_surrogate_pairs_become_question_marks(tmp_path: Path) -> None:
    """They are legal in JSON and in no text: one such document would end a whole run."""
    folder = _folder(
        tmp_path,
        corpus=b'{"_id": "d1", "title": "\\ud83d", "text": "They \\ude00 float \\ud83d\\ude00"}\n',
        queries=b'{"_id": "q1", "text": "boats \\ud83d"}\n',
    )
    collection = load_collection(folder)
    assert collection.documents == {"d1": "? They ? float 😀"}
    assert collection.queries == {"q1": "boats ?"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"corpus": b""}, "corpus.jsonl: cannot be read: FileNotFoundError"),
        ({"corpus": b"\n \n"}, "corpus.jsonl: empty"),
        ({"corpus": b'{"_id": "kingfisher'}, "corpus.jsonl, line 1: not JSON"),
        ({"corpus": b"[" * 100_000}, "corpus.jsonl, line 1: not JSON"),
        ({"corpus": b'{"_id": "a", "text": "b"}\n\n["kingfisher"]\n'}, "corpus.jsonl, line 3: not a JSON object"),
        ({"corpus": b'{"text": "kingfisher"}'}, "corpus.jsonl, line 1: _id must be there, text and not empty"),
        ({"corpus": b'{"_id": true, "text": ""}'}, "corpus.jsonl, line 1: _id must be there, text and not empty"),
        ({"corpus": b'{"_id": "\\ud800", "text": ""}'}, "corpus.jsonl, line 1: _id is not valid text"),
        (
            {"corpus": b'{"_id": "a", "text": ["kingfisher"]}'},
            "corpus.jsonl, line 1: text and title are strings, and text must be there",
        ),
        (
            {"corpus": b'{"_id": "a", "title": 1, "text": "kingfisher"}'},
            "corpus.jsonl, line 1: text and title are strings, and text must be there",
        ),
        (
            {"queries": b'{"_id": "a", "text": "kingfisher"}\n' * 2},
            "queries.jsonl, line 2: its _id was there before",
        ),
        ({"queries": b'{"_id": "a", "text": "kingfisher \xff"}'}, "queries.jsonl, line 1: not UTF-8"),
        ({"queries": b'{"_id": "a"}'}, "queries.jsonl, line 1: text and title are strings, and text must be there"),
        ({"qrels": b"q1 d1 2\n"}, "qrels.tsv, line 1: query-id, corpus-id and score are wanted, split by tabs"),
        ({"qrels": b"q1\td1\t1\nq1\td2\tone\n"}, "qrels.tsv, line 2: its score is not a whole number"),
        (
            {"qrels": b"q1\td1\t1\nq1\td1\t1\nq1\td1\t2\n"},
            "qrels.tsv, line 3: another grade of the pair was there before",
        ),
    ],
)
def test_a_broken_file_is_told_by_line(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    """File, line and rule are told, and nothing that the line holds."""
    with pytest.raises(ConfigError) as raised:
        load_collection(_folder(tmp_path, **files))
    assert str(raised.value) == f"{tmp_path}/{message}"
    assert _SECRET not in str(raised.value)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """One sentence."""
    with pytest.raises(ConfigError, match=r"there is no such folder$"):
        load_collection(tmp_path / "no")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sizes"), [("cranfield", (1400, 225, 1837)), ("dbpedia-entity-sample", (5000, 40, 3709))]
)
def test_real_collections_can_be_read(name: str, sizes: tuple[int, int, int]) -> None:
    """They have the documents, queries and judged pairs that their description counts."""
    folder = shared_data() / "beir" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not here (set CASCADE_DATA to the folder of real collections)")
    collection = load_collection(folder)
    pairs = sum(map(len, collection.judgements.values()))
    assert (len(collection.documents), len(collection.queries), pairs) == sizes
    assert json.dumps(collection.digests).count("sha256:") == 3
