"""What ``cascade capacity`` is told: files and options, read and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from cascade.capacity.demand import Evidence
from cascade.capacity.headroom import MOST_REPLICAS
from cascade.capacity.planning import PlannedLevel
from cascade.capacity.record_traffic import FEW_RECORDS, Counts, Digests, traffic_of_records
from cascade.capacity.report_shares import report_shares
from cascade.capacity.scrape import Scrape, read_scrape
from cascade.capacity.scraped_traffic import traffic_of_scrapes
from cascade.capacity.throughput import merged, parse_inline
from cascade.capacity.traffic import Traffic
from cascade.capacity.workload import traffic_of
from cascade.errors import ConfigError
from cascade.policy.levels import at_level, level_names
from cascade.policy.release import policy_digest
from cascade.rollout.load import LoadedRelease
from cascade.rollout.strict_yaml import parse_mapping
from cascade.types import StageName

__all__ = [
    "Arriving",
    "have_of",
    "levels_of",
    "traffic_from_metrics",
    "traffic_from_records",
    "traffic_from_workload",
    "written_throughputs",
]


@dataclass(frozen=True, slots=True)
class Arriving:
    """A workload, what was measured by level, and the conditions that tell where both are from."""

    traffic: Traffic
    evidence: Mapping[str, Evidence]
    conditions: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def traffic_from_workload(path: Path) -> Arriving:
    """Read a workload file. Raises ConfigError naming the file and the key."""
    data, digest = _mapping(path, "workload")
    return Arriving(traffic_of(data, f"workload {path}"), {}, {"workload": {"name": path.name, "sha256": digest}})


def traffic_from_records(
    paths: Sequence[Path], loaded: LoadedRelease, *, window_s: float, burst_factor: float
) -> Arriving:
    """Read files of decision records. Raises ConfigError."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("--records: a file is named twice, and its requests would count twice")
    observed = {key: value for key, value in loaded.written.items() if key != "levels"} | {"mode": "observe"}
    digests = Digests(loaded.policy_digest, policy_digest(observed), level_names(loaded.release)[0])
    found = traffic_of_records(paths, window_s=window_s, burst_factor=burst_factor, digests=digests)
    files = [{"name": path.name, "sha256": _digest(path)} for path in paths]
    conditions = {"files": files, "window_seconds": window_s, "counts": asdict(found.counts)}
    return Arriving(found.traffic, found.evidence, {"records": conditions}, tuple(_told(found.counts)))


def traffic_from_metrics(paths: Sequence[Path], loaded: LoadedRelease, *, burst_factor: float) -> Arriving:
    """Read scrapes of one process, in order of time. Raises ConfigError naming the file."""
    found = traffic_of_scrapes(
        [_scrape(path) for path in paths],
        burst_factor=burst_factor,
        digest=loaded.digest,
        first_level=level_names(loaded.release)[0],
        stages=[StageName(name) for name, spec in loaded.release.stages if spec is not None and not spec.orders],
    )
    files = [{"name": path.name, "sha256": _digest(path)} for path in paths]
    return Arriving(found.traffic, found.evidence, {"metrics": {"files": files}}, found.notes)


def _scrape(path: Path) -> Scrape:
    try:
        return read_scrape(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"metrics {path}: cannot be read: {type(error).__name__}") from None
    except ConfigError as error:
        raise ConfigError(f"metrics {path}: {error}") from None


def levels_of(
    loaded: LoadedRelease, arriving: Arriving, report: Path | None
) -> tuple[list[PlannedLevel], dict[str, Any], list[str]]:
    """Return the levels of a release with what was measured of each, the report's conditions, and notes on it."""
    release = loaded.release
    names = level_names(release)
    levels = {name: at_level(release, name) for name in names}
    found: dict[str, list[Evidence]] = {
        name: [arriving.evidence[name]] if name in arriving.evidence else [] for name in names
    }
    if report is None:
        return [PlannedLevel(name, levels[name], found[name]) for name in names], {}, []
    data, digest = _mapping(report, "report")
    shares = report_shares(data, report.name, loaded.policy_digest, names[0])
    for name in names:
        told = shares.evidence(name, levels[name], arriving.traffic)
        found[name] += [] if told is None else [told]
    note = shares.note(release, arriving.traffic)
    conditions = {"report": {"name": report.name, "sha256": digest}}
    return [PlannedLevel(name, levels[name], found[name]) for name in names], conditions, [] if note is None else [note]


def written_throughputs(inline: Sequence[str], measured: Path | None) -> dict[str, Any]:
    """Return all throughputs that were given, by stage. Raises ConfigError."""
    from_file = {} if measured is None else _mapping(measured, "measured")[0]
    return merged([*map(parse_inline, inline), from_file])


def have_of(written: str | None) -> dict[str, int] | None:
    """Return the replicas of ``small=2,large=3``. Raises ConfigError."""
    if written is None:
        return None
    have: dict[str, int] = {}
    for part in written.split(","):
        name, equals, count = (piece.strip() for piece in part.partition("="))
        if not equals or not name or name in have or not (count.isascii() and count.isdecimal()):
            raise ConfigError("--have: write POOL=COUNT, each once, as in small=2,large=3")
        if len(count) > len(str(MOST_REPLICAS)) or int(count) > MOST_REPLICAS:
            raise ConfigError(f"--have: {name}: at most {MOST_REPLICAS} replicas can be planned with")
        have[name] = int(count)
    return have


def _told(counts: Counts) -> list[str]:
    told = (
        (
            counts.records - counts.in_windows,
            "records came behind the last whole window: they count for sizes, not for rates",
        ),
        (counts.empty_windows, "windows without a record count as without a query; were records lost there?"),
        (counts.again, "records were read before, and count once"),
        (counts.shadows, "records are of shadows: no request asked for them, and what they sent is not counted"),
        (counts.degraded, "of the records that tell what is sent were degraded, and may have sent less than planned"),
        (counts.torn, "lines torn"),
        (counts.strange, "lines that are no record of this version"),
        (counts.headless, "records without the line that says what they depend on"),
    )
    notes = [f"{count} {what}" for count, what in told if count]
    if 0 < counts.of_release < FEW_RECORDS:
        notes.append(f"only {counts.of_release} records tell what this release sends: its pairs are uncertain")
    if not counts.of_release:
        notes.append("no record is of this release: records tell arrivals and sizes, and not what it sends")
    return notes


def _mapping(path: Path, what: str) -> tuple[dict[str, Any], str]:
    """Return what a file in YAML, or in JSON by its name, holds, and its digest. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} {path}: cannot be read: {type(error).__name__}") from None
    try:
        found = orjson.loads(data) if path.suffix == ".json" else parse_mapping(data)
    except orjson.JSONDecodeError:
        raise ConfigError(f"{what} {path}: not valid JSON") from None
    except ConfigError as error:
        raise ConfigError(f"{what} {path}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{what} {path}: the file must hold one mapping")
    return found, hashlib.sha256(data).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
