"""Parsers of tables, records, collections, models, and of what commands are given."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from cascade.capacity import scrape
from cascade.capacity.scraped_traffic import traffic_of_scrapes
from cascade.capacity.throughput import throughputs_of
from cascade.cli.capacity_inputs import have_of, traffic_from_workload, written_throughputs
from cascade.cli.explain_found import in_line, latest
from cascade.cli.explain_line import explained_of
from cascade.errors import ConfigError
from cascade.fit.certify.attempts import attempt
from cascade.replay.collection import load_collection
from cascade.replay.from_records import gather
from cascade.replay.journal import Journal
from cascade.replay.logged.outcomes import read_outcomes
from cascade.replay.record_files import lines_of
from cascade.replay.table import read_table
from cascade.rollout.sources.address import checked_place
from cascade.server.redis_address import checked_reference
from cascade.server.tracing import _headers_in
from cascade.stages.engine.readers import pair_reader
from cascade.telemetry.record_file import RecordFile
from cascade.telemetry.record_parquet import joined, record_schema, record_table, writer_of
from cascade.telemetry.record_rows import line_of, row_of
from cascade.types import StageName
from cascade.weights.text_pairs import read_lists
from tests.capacity.made import record, records_head
from tests.capacity.scraped import Counting
from tests.fuzz.holding import Parser, in_file, lines, scratch
from tests.fuzz.mutation import CANARY
from tests.replay.records import decision_line, head_line
from tests.telemetry.recorded_lines import every_record

__all__ = ["DATA_PARSERS"]

_DIGEST: Final = f"sha256:{'1' * 64}"


def _parquet(columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(dict(metadata or {})), written)
    return written.getvalue()


def _collection(name: str) -> Callable[[bytes], Any]:
    folder = scratch()
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    whole = {
        "corpus.jsonl": _CORPUS,
        "queries.jsonl": _QUERIES,
        "qrels/test.tsv": _QRELS,
    }

    def parse(data: bytes) -> Any:
        for each, content in (whole | {name: data}).items():
            (folder / each).write_bytes(content)
        return load_collection(folder, folder / "qrels/test.tsv")

    return parse


def _journal(path: Path) -> None:
    with Journal(path, {"a": 1}, "2026-11-29"):
        pass


def _records(path: Path) -> None:
    for line in lines_of(path):
        row_of(line)
    gather([path])


def _round_trip(data: bytes) -> None:
    for line in data.splitlines():
        row_of(row := line)
        assert isinstance(line_of(row_of(row)), bytes)


def _explained(data: bytes) -> None:
    explained_of(in_line(data).told)


def _aged(path: Path) -> None:
    file = RecordFile(path, most_bytes=10**9, files=2, most_seconds=60)
    file.open()
    file.due_s()
    file.close()


def _scraped(data: bytes) -> object:
    found = scrape.read_scrape(data.decode("utf-8", "replace"))
    stages = (StageName.SMALL, StageName.LARGE)
    return traffic_of_scrapes([found], burst_factor=1.5, digest=_DIGEST, first_level="normal", stages=stages)


def _records_in_parquet() -> bytes:
    schema = record_schema()
    written = io.BytesIO()
    writer = writer_of(written, schema)
    writer.write_table(joined([record_table(lines(head_line(), decision_line()).splitlines(keepends=True), schema)]))
    writer.close()
    return written.getvalue()


_CORPUS: Final = lines({"_id": "d1", "title": "t", "text": CANARY}, {"_id": 2, "text": "b"})
_QUERIES: Final = lines({"_id": "q1", "text": CANARY})
_QRELS: Final = b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\t2\t0\n"
_TABLE: Final = _parquet(
    {
        "query_id": ["q1", "q1", "q2"],
        "doc_id": ["a", CANARY, "a"],
        "small": [0.5, 0.25, 1.0],
        "large": [1.0, float("nan"), 2.0],
        "rank_first": [1, 2, 1],
        "rel": [1, 0, -1],
        "tokens": [3, 4, 5],
    },
    {"cascade": json.dumps({"a": 1})},
)
_TOKENIZER: Final = orjson.dumps(
    {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": content, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for number, content in enumerate(("[UNK]", "[SEP]"))
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"[SEP]": {"id": "[SEP]", "ids": [1], "tokens": ["[SEP]"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "[SEP]": 1, "lamp": 2, "oil": 3}, "unk_token": "[UNK]"},
    }
)
_READ_OF_A_SCRAPE: Final = re.findall(r'"(cascade_[a-z_]+)"', Path(scrape.__file__).read_text(encoding="utf-8"))
_SCRAPE: Final = b"".join(
    line
    for line in Counting(_DIGEST).serve(2, 100.0).printed().encode().splitlines(keepends=True)
    if line.startswith(tuple(name.encode() for name in _READ_OF_A_SCRAPE))
)
_RECORDS: Final = (
    lines(head_line(), decision_line()),
    b"".join(each.head + each.line for each in every_record()),
    lines(records_head(), record(1.0)),
)
_WORKLOAD: Final = orjson.dumps(
    {
        "arrivals": {"windows": [{"qps": 10, "seconds": 300}, {"qps": 40, "seconds": 100}], "burst_factor": 1.5},
        "candidates": 100,
        "pair_tokens": 120,
    }
)

_CONFIG: Final = (ConfigError,)

DATA_PARSERS: Final = (
    Parser("table", (_TABLE,), in_file("t.parquet", read_table), _CONFIG, "bytes"),
    Parser("records", _RECORDS, in_file("r.jsonl", _records), _CONFIG, "bytes"),
    Parser(
        "record, to Parquet and back",
        (orjson.dumps(decision_line()), *(each.line for each in every_record())),
        _round_trip,
        (),
    ),
    Parser(
        "record, explained",
        (orjson.dumps(decision_line()), *(each.line for each in every_record())),
        _explained,
        _CONFIG,
        names_keys=True,
    ),
    Parser(
        "records, the latest of them", _RECORDS, in_file("r.jsonl", lambda path: latest([path], 3)), _CONFIG, "bytes"
    ),
    Parser("records, the age of their file", _RECORDS, in_file("r.jsonl", _aged), (), "bytes"),
    Parser(
        "journal",
        (
            lines(
                {"began": "2026-11-29", "depends_on": {"a": 1}},
                {"query": "q", "documents": ["a"], "channels": {"c": [1.0]}, "scores": {"s": [None]}, "ms": {"s": 1.0}},
            ),
        ),
        in_file("j.journal", _journal),
        _CONFIG,
        "bytes",
    ),
    Parser("collection: documents", (_CORPUS,), _collection("corpus.jsonl"), _CONFIG, "bytes"),
    Parser("collection: queries", (_QUERIES,), _collection("queries.jsonl"), _CONFIG, "bytes"),
    Parser("collection: judgements", (_QRELS,), _collection("qrels/test.tsv"), _CONFIG, "bytes"),
    Parser(
        "outcomes",
        (lines({"decision_id": "d", "reward": 1.0}),),
        in_file("o.jsonl", lambda path: read_outcomes([path])),
        _CONFIG,
        "bytes",
    ),
    Parser(
        "attempts",
        (lines({"format": "cascade-attempt/1", "contract": "1" * 64, "identity": "2" * 64, "number": 1}),),
        in_file("a.jsonl", lambda path: attempt(path, "3" * 64, "2" * 64, 0.1)),
        _CONFIG,
        "bytes",
    ),
    Parser(
        "pairs of texts",
        (f"{CANARY}\tdocument\nquery\t{CANARY}\n".encode(),),
        in_file("p.tsv", read_lists),
        _CONFIG,
        "bytes",
    ),
    Parser("scrape of metrics", (_SCRAPE,), _scraped, _CONFIG, "bytes"),
    Parser("workload", (_WORKLOAD,), in_file("w.json", traffic_from_workload), _CONFIG, names_keys=True),
    Parser(
        "measured throughputs",
        (orjson.dumps({"small": {"pairs_per_s": 1000.0, "pair_tokens": 120.0}}),),
        in_file("m.json", lambda path: throughputs_of(written_throughputs([], path))),
        _CONFIG,
        names_keys=True,
    ),
    Parser(
        "option --throughput",
        (b"small=pairs_per_s:400,pair_tokens:120",),
        lambda data: throughputs_of(written_throughputs([data.decode("latin-1")], None)),
        _CONFIG,
        "bytes",
        names_keys=True,
    ),
    Parser(
        "option --have",
        (b"small=2,large=3",),
        lambda data: have_of(data.decode("latin-1")),
        _CONFIG,
        "bytes",
        names_keys=True,
    ),
    Parser(
        "headers of traces",
        (b"authorization: Bearer a\nx-team: search\n",),
        in_file("h.txt", _headers_in),
        _CONFIG,
        "bytes",
    ),
    Parser(
        "records in Parquet",
        (_records_in_parquet(),),
        in_file("r.parquet", lambda path: list(lines_of(path))),
        _CONFIG,
        "bytes",
    ),
    Parser(
        "tokenizer of a model",
        (_TOKENIZER,),
        in_file("tokenizer.json", lambda path: pair_reader(path, max_length=32)),
        _CONFIG,
    ),
    Parser(
        "address of a release",
        (b"https://releases.test:443/a.tar?x", b"/etc/cascade/release.yaml"),
        lambda data: checked_place(data.decode("latin-1")),
        (ValueError,),
        "bytes",
    ),
    Parser(
        "address of a Redis",
        (b"rediss://r.test:6379/0", b"env:NAME", b"file:/a"),
        lambda data: checked_reference(data.decode("latin-1")),
        (ValueError,),
        "bytes",
    ),
)
