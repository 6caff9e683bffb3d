"""Records of decisions, from settings to the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cascade.rollout.load import LoadedRelease
from cascade.server.settings import Settings
from cascade.stages.base import Stage
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.parquet_file import DEFAULT_SECONDS, ParquetFile, is_parquet
from cascade.telemetry.record_file import RecordFile, RecordSink
from cascade.telemetry.record_log import RecordLog
from cascade.telemetry.recorder import DecisionRecorder
from cascade.telemetry.records import RecordFormat, Source
from cascade.telemetry.sole import sole
from cascade.types import StageName

__all__ = ["Records", "open_records"]

_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Records:
    """Where the decisions of every release are recorded: in one file."""

    _log: RecordLog
    _metrics: Metrics
    _sample: float
    _hash_text: Callable[[str], str]
    _held: ExitStack

    def recorder(self, loaded: LoadedRelease, stages: Mapping[StageName, Stage]) -> DecisionRecorder:
        """Return what records the decisions of a release."""
        source = Source(
            release=loaded.release,
            release_digest=loaded.digest,
            policy_digest=loaded.policy_digest,
            sample=self._sample,
            scorers=lambda: {str(name): _scorer(name, stage) for name, stage in stages.items()},
            hash_text=self._hash_text,
        )
        return DecisionRecorder(RecordFormat(source), self._log, self._metrics, lambda: datetime.now(UTC))

    async def aclose(self) -> None:
        """Write what waits, for some seconds at most."""
        await self._log.aclose(_CLOSE_SECONDS)
        self._held.close()


def open_records(
    settings: Settings, *, hash_text: Callable[[str], str], metrics: Metrics, faults: Faults
) -> Records | None:
    """Open the file of records, and hold it against other processes; None where settings name none. Raises ConfigError."""
    path = settings.record_file
    if path is None:
        return None
    with ExitStack() as held:
        held.enter_context(sole(path.with_name(f".{path.name}.lock"), f"record_file {path}"))
        log = RecordLog(
            _sink(path, settings),
            queue=settings.record_queue,
            count_written=metrics.records.inc,
            count_dropped=metrics.drop_records,
            count_fault=faults,
            name=f"record_file {path}",
        )
        return Records(log, metrics, settings.record_sample, hash_text, held.pop_all())


def _sink(path: Path, settings: Settings) -> RecordSink:
    most_bytes, files, seconds = settings.record_max_bytes, settings.record_files, settings.record_seconds
    if is_parquet(path):
        return ParquetFile(path, most_bytes=most_bytes, files=files, most_seconds=seconds or DEFAULT_SECONDS)
    return RecordFile(path, most_bytes=most_bytes, files=files, most_seconds=seconds)


def _scorer(name: StageName, stage: Stage) -> dict[str, Any]:
    return {"stage": name, "fingerprint": stage.fingerprint, "observed": stage.observed}
