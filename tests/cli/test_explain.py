"""``cascade explain``."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import typer
import yaml
from typer.testing import CliRunner

from cascade.cli.explain import explain
from cascade.cli.explain_meanings import ACTIONS, ARMS, DEGRADED, DEPTH_REASONS, MISFITS, meaning
from cascade.decision import Action, Decision, DegradedReason, Estimates, Level
from cascade.errors import ConfigError
from cascade.policy.depth import DepthReason
from cascade.policy.release import parse_release, release_digest
from cascade.telemetry.logs import configure_logging, log_decision
from cascade.telemetry.record_file import Record
from cascade.telemetry.record_parquet import record_schema, record_table, writer_of
from cascade.telemetry.records import Assignment, Decided, RecordFormat, Source
from cascade.testing.calibration import scripted_calibration
from cascade.text import Text
from cascade.types import Arm, Candidate, QueryClass, Request, StageCost, StageName
from tests.logs import logging_given_back
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of
from tests.telemetry.recorded_lines import CANARY_TEXT, every_record

_BEGAN: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
_RULE: Final[dict[str, Any]] = {
    "kind": "calibrated",
    "calibration": f"sha256:{'0' * 64}",
    "k": 5,
    "price_per_pair": 0.01,
    "safe_top_m": 1,
    "accept": {"margin_at_least": 0.3, "expected_loss_at_most": 0.05},
}
_DATA: Final = release_data(
    release="mine", escalation=_RULE, levels=[{"name": "calm"}, {"name": "busy", "escalation": "none"}]
)
_REQUEST: Final = Request(Text(CANARY_TEXT), tuple(Candidate(Text(f"{CANARY_TEXT} {place}")) for place in range(12)))
_TAKEN: Final = decision(
    id="answered",
    release="mine",
    level=Level("calm"),
    tenant="acme",
    query_hash="ab" * 8,
    candidates=12,
    top_n=12,
    estimates=Estimates(5, 0.9, 0.25, 1.5, 0.03125, 0.75),
    degraded=(DegradedReason.STAGE_TIMEOUT,),
    rounds=(
        round_of(StageName.SMALL),
        round_of(StageName.LARGE, outcome="stage_timeout", code="deadline", cost=None, scored=0, blank=0, refused=0),
    ),
)


def _record(taken: Decision = _TAKEN, seconds: int = 0, data: dict[str, Any] = _DATA, **changes: Any) -> Record:
    release = parse_release(data)
    form = RecordFormat(Source(release, release_digest(data), "sha256:p", 0.5, dict, lambda text: f"{len(text):016x}"))
    scores = {place: 1.0 - place / 10 for place in range(10)}
    decided = Decided(_REQUEST, taken, release, None, scores, {3: 1.0}, frozenset({7, 9}))
    return form.record(replace(decided, **changes), _BEGAN + timedelta(seconds=seconds))


def _shadow(of: str = "answered", name: str = "beside") -> Record:
    taken = replace(
        _TAKEN, id=name, release="other", arm=Arm.SHADOW, escalated=(3, 2, 4), degraded=(DegradedReason.BREAKER_OPEN,)
    )
    return _record(taken, 1, release_data(release="other", levels=[{"name": "calm"}]), assigned=Assignment(0.01, of))


def _write(path: Path, *records: Record) -> Path:
    path.write_bytes(b"".join(part for record in records for part in (record.head, record.line)))
    return path


def _parquet(path: Path, *records: Record) -> Path:
    schema = record_schema()
    with path.open("wb") as file:
        writer = writer_of(file, schema)
        writer.write_table(record_table([part for record in records for part in (record.head, record.line)], schema))
        writer.close()
    return path


def _run(*arguments: str | Path, stdin: bytes = b"") -> str:
    app = typer.Typer()
    app.command()(explain)
    done = CliRunner().invoke(app, list(map(str, arguments)), input=stdin)
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def _release(path: Path) -> Path:
    path.write_text(yaml.safe_dump(_DATA), encoding="utf-8")
    return path


def test_a_decision_is_explained_in_words(tmp_path: Path) -> None:
    """Which request, by which release, how deep and why, what was sent and why, what came of it, and what was answered."""
    path = _write(tmp_path / "r", _record(replace(_TAKEN, id="other")), _record())
    told = _run(path, "--id", "answered").splitlines()
    assert told == [
        "decision answered",
        f"request    2026-11-29T12:00:00.000+00:00, query {'ab' * 8}, tenant acme, native",
        "           12 candidates, 12 to answer, 100.0 ms to do it in",
        f"release    mine, {release_digest(_DATA)}, mode cascade",
        "           load level calm",
        "           arm stable: the release that answers whatever no canary does",
        "           recorded are 50% of the queries; this arm had a probability of 1",
        "depth      10 of 12 candidates: the same for every query",
        "signals    bm25.gap 0.5",
        "action     cluster: the candidates that were worth their price go to the large stage",
        "           sent to the large stage, best first: 3, 1",
        (
            "estimates  for the top 5: the surest first place has 0.9, margin 0.25, entropy 1.5 nats, "
            "expected loss of the small order 0.03125, the small order acceptable with 0.75"
        ),
        (
            "rounds     small (m): 8 sent, 7 scored, 2 blank, 1 refused: went well in 12.3 ms, 120 tokens, "
            "3 pairs not read in full"
        ),
        "           large (m): 8 sent, 0 scored: stage_timeout (deadline) in 12.3 ms",
        "degraded   stage_timeout: a stage had not answered when its time was over",
        "left out   blank, or refused by a stage: 7, 9",
        "answer     first place by the large stage",
        "           4 of the first five places hold another candidate than in first-stage order",
        "           30.1 ms in all, 1.0 ms of them without a stage being waited for",
    ]


@pytest.mark.parametrize(
    ("sample", "said"),
    [(1.0, "all queries"), (0.999, "99.9% of the queries"), (0.00025, "0.025% of the queries")],
)
def test_the_share_that_is_recorded_is_told_in_words(sample: float, said: str) -> None:
    """All of them are not 1 of them."""
    told = orjson.loads(_record().line) | {"sample": sample, "propensity": sample}
    lines = _run("-", stdin=orjson.dumps(told))
    assert f"recorded are {said}; this arm had a probability of 1" in lines


def test_what_came_from_the_cache_is_told(tmp_path: Path) -> None:
    """Of each round, and with no time or tokens of a server."""
    (small, *others) = _TAKEN.rounds
    kept = replace(small, cost=StageCost(0, 0, tokens_estimated=False, truncated=0, cached=5))
    told = _run(_write(tmp_path / "r", _record(replace(_TAKEN, rounds=(kept, *others)))), "--id", "answered")
    assert "small (m): 8 asked for, 7 scored, 5 of them from the cache, 2 blank, 1 refused: went well in" in told
    assert "of those from the cache it is not known what was read" in told


def test_what_an_embedded_stage_ran_besides_is_told(tmp_path: Path) -> None:
    """Padding of batches, and windows of long documents beyond their first."""
    (small, *others) = _TAKEN.rounds
    ran = replace(small, cost=StageCost(3, 90, tokens_estimated=False, truncated=0, windows=4, padding=7))
    told = _run(_write(tmp_path / "r", _record(replace(_TAKEN, rounds=(ran, *others)))), "--id", "answered")
    assert ", 90 tokens and 7 of padding, 4 further windows of long documents\n" in told


def test_the_release_says_by_which_rule(tmp_path: Path) -> None:
    """Prices and thresholds at the decision's load level, each threshold with what was estimated."""
    path = _write(tmp_path / "r", _record(), _record(replace(_TAKEN, id="busy", level=Level("busy", 1))))
    release = _release(tmp_path / "mine.yaml")
    rules = [said["lines"] for said in _said(path, "answered", release) if said["of"] == "rules"]
    assert rules == [
        [
            "depth: the first 50 candidates",
            (
                "escalation: candidates worth at least 0.01 of the large order's gain at 5 go to the large stage, in two rounds: "
                "first those worth 8 times as much, or 10 where that is more; the small order stands where margin at least 0.3 "
                "and expected loss at most 0.05; where the calibration does not hold, the first 1 of the small order"
            ),
            "margin 0.25, at least 0.3 is wanted: does not hold",
            "expected loss 0.03125, at most 0.05 is wanted: holds",
            "time: 100 ms in all, small 40, large 60, kept 10",
        ]
    ]
    busy = [said["lines"] for said in _said(path, "busy", release) if said["of"] == "rules"]
    assert busy[0][1] == "escalation: nothing goes to the large stage"


def _said(path: Path, name: str, release: Path) -> list[dict[str, Any]]:
    told = orjson.loads(_run(path, "--id", name, "--release", release, "--json"))
    found: list[dict[str, Any]] = told["decisions"][0]["said"]
    return found


def test_an_entropy_that_is_wanted_is_told_and_what_is_not_known_is_not(tmp_path: Path) -> None:
    """Of thresholds only those that are set; a number that the record lacks is held against none."""
    accept = {"margin_at_least": 0.3, "entropy_at_most": 2.0}
    data = _DATA | {"escalation": _RULE | {"accept": accept, "margin_noise": 0.01}}
    release = tmp_path / "mine.yaml"
    release.write_text(yaml.safe_dump(data), encoding="utf-8")
    path = _write(tmp_path / "r", _record(data=data))
    (rules,) = (said["lines"] for said in _said(path, "answered", release) if said["of"] == "rules")
    assert rules[2:4] == [
        "margin 0.25, at least 0.3 is wanted, to be cleared by the noise of 0.01: does not hold",
        "entropy 1.5, at most 2 is wanted: holds",
    ]
    unknown = orjson.loads(_record(data=data).line)
    unknown["estimates"] |= dict.fromkeys(("margin", "entropy", "expected_loss"))
    told = _run("-", "--release", release, stdin=_record(data=data).head + orjson.dumps(unknown))
    assert "margin unknown" in told
    assert "is wanted" not in told


def test_a_calibration_that_does_not_hold_and_a_query_class_are_told() -> None:
    """With the reason in words."""
    taken = replace(_TAKEN, action=Action.SAFE, misfit="channel_missing", query_class=QueryClass.IDENTIFIER)
    told = _run("-", stdin=_record(taken).line)
    assert (
        "the calibration does not hold: channel_missing: the request carries no scores of a channel that it reads"
        in told
    )
    assert "signals    query class identifier" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"release": "another"}, r"rules      release another, sha256:\w+, is not the one that decided this"),
        ({"levels": [{"name": "calm"}]}, r"rules      release mine, sha256:\w+, is not the one that decided this"),
    ],
)
def test_a_release_that_did_not_decide_is_told(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """By its digest: the name alone is not enough."""
    release = tmp_path / "other.yaml"
    release.write_text(yaml.safe_dump(_DATA | changes), encoding="utf-8")
    lines = _run(_write(tmp_path / "r", _record()), "--id", "answered", "--release", release).splitlines()
    assert any(re.fullmatch(told, line) for line in lines)


def test_a_level_that_the_release_has_not_is_told(tmp_path: Path) -> None:
    """A log line names no digest, and another release of the name may have other levels."""
    line = orjson.dumps(orjson.loads(_record().line) | {"load_level": "gone", "head": None})
    told = _run("-", "--release", _release(tmp_path / "mine.yaml"), stdin=line)
    assert "rules      the release has no load level gone" in told.splitlines()


@pytest.mark.parametrize("asked", ["answered", "beside"])
@pytest.mark.parametrize("shadow_first", [False, True])
def test_the_shadow_stands_beside_what_it_shadows(tmp_path: Path, asked: str, shadow_first: bool) -> None:
    """Whichever of the two is asked for, whichever file it is in, lines or Parquet, before or behind."""
    files = [_write(tmp_path / "r", _record()), _parquet(tmp_path / "s.parquet", _shadow())]
    told = _run(*(reversed(files) if shadow_first else files), "--id", asked).splitlines()
    begins = next(number for number, line in enumerate(told) if line.startswith("shadow "))
    assert told[begins:] == [
        "shadow     beside of release other beside answered of mine",
        "           depth 10 beside 10; cluster beside cluster",
        "           sent 3 beside 2, 1 of them the same",
        "           placed by large beside large; 30.1 ms beside 30.1 ms",
        "           the shadow was degraded: breaker_open",
    ]
    if asked == "beside":
        assert (
            "           arm shadow answered: scored beside the answer of another release; nobody waited for it" in told
        )
        assert "           recorded are 50% of the queries; this arm had a probability of 0.01" in told


@pytest.mark.parametrize("asked", ["answered", "beside"])
def test_the_rules_are_told_of_whichever_of_a_pair_the_release_decided(tmp_path: Path, asked: str) -> None:
    """The candidate's rules are of its shadow, the stable release's of the answer; the other's are not told."""
    path = _write(tmp_path / "r", _record(), _shadow())
    other = tmp_path / "other.yaml"
    shadows = release_data(release="other", levels=[{"name": "calm"}])
    other.write_text(yaml.safe_dump(shadows), encoding="utf-8")
    for release, decided in ((_release(tmp_path / "mine.yaml"), "answered"), (other, "beside")):
        (rules,) = (said["lines"] for said in _said(path, asked, release) if said["of"] == "rules")
        assert (rules[0] == f"of {decided}") is (decided != asked)
        assert not any("is not the one that decided" in line for line in rules)


def test_the_latest_are_told_by_their_time(tmp_path: Path) -> None:
    """Over all files, oldest first, without shadows."""
    names = {"a": 3, "b": 1, "c": 4, "d": 2}
    records = [_record(replace(_TAKEN, id=name), seconds) for name, seconds in names.items()]
    files = [_write(tmp_path / "r", *records[:2]), _parquet(tmp_path / "s", records[2], _shadow(), records[3])]
    told = orjson.loads(_run(*files, "--last", "3", "--json"))
    assert [one["decision_id"] for one in told["decisions"]] == ["d", "a", "c"]
    plain = _run(*files, "--last", "2").splitlines()
    assert [line for line in plain if line.startswith("decision")] == ["decision a", "decision c"]
    assert plain.count("") == 1


def test_json_has_the_record_the_head_and_the_shadow(tmp_path: Path) -> None:
    """As they were written."""
    path = _write(tmp_path / "r", _record(), _shadow())
    (told,) = orjson.loads(_run(path, "--id", "answered", "--json"))["decisions"]
    assert told["decision"] == orjson.loads(_record().line)
    assert told["head"] == orjson.loads(_record().head)
    assert told["shadow"] == orjson.loads(_shadow().line)
    assert told["shadow_head"]["release"] == "other"


def test_mode_observe_tells_what_would_have_been(tmp_path: Path) -> None:
    """With the calibration's estimates, without it why not, and where the small stage failed that it is not known."""
    data = release_data(release="o", mode="observe", depth=10, escalation=_RULE)
    beside = round_of(StageName.SMALL)
    known: dict[str, Any] = {"beside": beside, "large": {place: float(place) for place in range(12)}, "data": data}
    records = [
        _record(replace(_TAKEN, id="known"), **known, calibration=scripted_calibration(())),
        _record(replace(_TAKEN, id="safe"), **known),
        _record(replace(_TAKEN, id="dropped"), data=data, dropped=True),
    ]
    path = _write(tmp_path / "r", *records)
    told = {name: _run(path, "--id", name).splitlines() for name in ("known", "safe", "dropped")}
    assert any(line.startswith("           for the top 5: the surest first place has ") for line in told["known"])
    assert "observed   in mode cascade it would have scored 10: the same for every query" in told["safe"]
    assert (
        "           and taken safe: the calibration does not hold for this request, and the top of the small order is sent "
        "in its place, sending 0 in 1 rounds"
    ) in told["safe"]
    assert (
        "           the calibration would not have held: no_calibration: none is in use: it was fitted for other servers, "
        "or is not there"
    ) in told["safe"]
    assert (
        "observed   what the release would have decided is not known: the small stage beside the answer: dropped"
    ) in told["dropped"]


def test_a_line_on_stdin_is_explained() -> None:
    """A record with its head or alone, and a line of the log."""
    record = _record()
    assert f"release    mine, {release_digest(_DATA)}, mode cascade" in _run("-", stdin=record.head + record.line)
    assert "release    mine\n" in _run("-", stdin=record.line)
    log = io.BytesIO()
    with logging_given_back():
        configure_logging("info", log)
        log_decision(
            replace(_TAKEN, excluded=3, query_class=None, signals={}, escalated=(), rounds=()), outcome="refused"
        )
    told = _run("-", stdin=log.getvalue())
    assert "left out   3 candidates were blank or refused by a stage" in told
    assert "rounds     none: no stage was asked" in told
    assert "answer     the caller got an error in place of a degraded order" in told


def test_a_record_of_a_refused_request_says_so(tmp_path: Path) -> None:
    """The order that stands in it reached nobody."""
    told = "answer     the caller got an error in place of a degraded order"
    refused = _record(data=_DATA | {"fallback": "error"})
    assert told in _run(_write(tmp_path / "r", refused), "--last", "1").splitlines()
    assert told in _run(_parquet(tmp_path / "p", refused), "--last", "1").splitlines()
    assert told not in _run(_write(tmp_path / "a", _record()), "--last", "1").splitlines()
    shadow = _record(replace(_TAKEN, arm=Arm.SHADOW), data=_DATA | {"fallback": "error"})
    assert told not in _run(_write(tmp_path / "s", shadow), "--id", "answered").splitlines(), "nobody waited for it"


@pytest.mark.parametrize("change", [{"of": ["answered"]}, {"decision_id": {}}, {"decision_id": None}])
def test_a_line_without_an_id_that_can_be_one_is_passed_over(tmp_path: Path, change: dict[str, Any]) -> None:
    """As one that is torn: no other decision is the worse for it."""
    path = _write(tmp_path / "r", _record())
    path.write_bytes(path.read_bytes() + orjson.dumps(orjson.loads(_record().line) | change) + b"\n")
    for arguments in (("--last", "5"), ("--id", "answered")):
        assert _run(path, *arguments).count("decision answered") == 1


def test_every_record_of_ours_can_be_explained(tmp_path: Path) -> None:
    """Of every arm and mode, and none with a text."""
    path = _write(tmp_path / "r", *every_record())
    told = _run(path, "--last", "10") + _run(path, "--last", "10", "--json")
    assert told.count("decision id-") == 6
    assert CANARY_TEXT not in told


def test_what_a_line_names_does_nothing_to_a_terminal() -> None:
    """A release or an id with an escape in it is printed as text."""
    told = orjson.loads(_record().line) | {"release": "r\x07[2J", "decision_id": "d\x07e"}
    said = _run("-", stdin=orjson.dumps(told))
    assert "decision d?e\n" in said
    assert "release    r?[2J\n" in said


def test_long_lists_are_cut() -> None:
    """The first twenty say enough in words; JSON has all."""
    line = orjson.dumps(orjson.loads(_record().line) | {"escalated": list(range(25))})
    assert f"best first: {', '.join(map(str, range(20)))} and 5 more" in _run("-", stdin=line)


def _bad(**changes: Any) -> bytes:
    return orjson.dumps(orjson.loads(_record().line) | changes)


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        (b"", "^-: one line is wanted, and none came$"),
        (_bad() + b"\n" + _bad(), "^-: one line is wanted, and 2 came$"),
        (b'{"decision_id": ', "^-: the line is no JSON object$"),
        (b"[1]", "^-: the line is no JSON object$"),
        (b"{}", "^the line tells of no decision: it has no decision_id$"),
        (_bad(depth=-1), "^the line is no decision of this version: depth: "),
        (_bad(rounds=[{"stage": "huge"}]), r"^the line is no decision of this version: rounds\.0\.stage: "),
        (_bad(estimates={"k": CANARY_TEXT}), r"^the line is no decision of this version: estimates\.k: "),
    ],
)
def test_what_is_no_decision_is_refused(stdin: bytes, told: str) -> None:
    """The field is named, and nothing is quoted."""
    with pytest.raises(ConfigError, match=told) as caught:
        _run("-", stdin=stdin)
    assert CANARY_TEXT not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("r",), "name either a decision with --id, or with --last how many"),
        (("r", "--id", "a", "--last", "2"), "name either a decision with --id, or with --last how many"),
        (("-", "r"), "-: the one line on stdin goes with no file, --id or --last"),
        (("-", "--last", "2"), "-: the one line on stdin goes with no file, --id or --last"),
        (("none", "--id", "a"), "records none: cannot be read: FileNotFoundError"),
        (("none", "--last", "1"), "records none: cannot be read: FileNotFoundError"),
        (("-", "--release", "none.yaml"), "release none.yaml: cannot be read: FileNotFoundError"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[str, ...], told: str) -> None:
    """One sentence says what."""
    with pytest.raises(ConfigError) as caught:
        _run(*arguments, stdin=_record().line)
    assert str(caught.value) == told


def test_what_is_not_in_the_files_is_told(tmp_path: Path) -> None:
    """An id that nothing has, though a line holds its text, and files without a decision; torn lines are passed over."""
    path = _write(tmp_path / "r", _shadow(of="gone"))
    path.write_bytes(path.read_bytes() + b'{"kind":"decision","decision_id":"gone')
    with pytest.raises(ConfigError, match=r"^records: no decision of that id is in them$"):
        _run(path, "--id", "gone")
    with pytest.raises(ConfigError, match=r"^records: there is no decided request in them$"):
        _run(path, "--last", "1")


def test_every_closed_word_has_a_meaning() -> None:
    """A new reason or action needs its own; a word of a later version is told as not known."""
    assert set(ACTIONS) == set(Action)
    assert set(ARMS) == set(Arm)
    assert set(DEGRADED) == set(DegradedReason)
    assert set(DEPTH_REASONS) == {*DepthReason, ""}
    assert meaning(MISFITS, "of_tomorrow") == "not known to this version"


def test_records_from_before_there_were_arms_are_explained() -> None:
    """They were decided by the one release that there was."""
    told = orjson.loads(_record().line)
    for name in ("arm", "of", "sample"):
        del told[name]
    lines = _run("-", stdin=orjson.dumps(told))
    assert "arm stable" in lines
    assert "recorded are" not in lines


def test_a_mended_order_is_told_in_words(tmp_path: Path) -> None:
    """What the model left out or named twice, and what of its prompt the server had."""
    ordered = replace(
        _TAKEN.rounds[0], cost=StageCost(1, 900, tokens_estimated=False, truncated=0, repaired=4, prefix_tokens=640)
    )
    told = _run(_write(tmp_path / "r", _record(replace(_TAKEN, rounds=(ordered,)))), "--id", _TAKEN.id)
    assert "900 tokens, 640 of them in the server's prefix cache, an order in which 4 things had to be mended" in told
