"""Records of decisions, from settings to the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cascade.guard.beside import Beside
from cascade.rollout.load import LoadedRelease
from cascade.server.settings import Settings
from cascade.stages.base import Stage
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.record_log import RecordFile, RecordLog
from cascade.telemetry.recorder import DecisionRecorder
from cascade.telemetry.records import RecordFormat, Source
from cascade.types import StageName

__all__ = ["Recording", "open_recording"]

_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Recording:
    """What a pipeline records with: a recorder, and the bound of what mode observe scores beside answers."""

    recorder: DecisionRecorder
    beside: Beside
    _log: RecordLog

    async def aclose(self) -> None:
        """Cancel what is scored beside answers, and write what waits, for some seconds at most."""
        await self.beside.aclose()
        await self._log.aclose(_CLOSE_SECONDS)


def open_recording(
    settings: Settings,
    loaded: LoadedRelease,
    stages: Mapping[StageName, Stage],
    *,
    hash_text: Callable[[str], str],
    metrics: Metrics,
    faults: Faults,
) -> Recording | None:
    """Open the file of records; None where settings name none. Raises ConfigError."""
    if settings.record_file is None:
        return None
    file = RecordFile(settings.record_file, most_bytes=settings.record_max_bytes, files=settings.record_files)
    log = RecordLog(
        file,
        queue=settings.record_queue,
        count_written=metrics.records.inc,
        count_dropped=metrics.drop_records,
        count_fault=faults,
    )
    source = Source(
        release=loaded.release,
        release_digest=loaded.digest,
        policy_digest=loaded.policy_digest,
        sample=settings.record_sample,
        scorers=lambda: {str(name): _scorer(name, stage) for name, stage in stages.items()},
        hash_text=hash_text,
    )
    recorder = DecisionRecorder(RecordFormat(source), log, metrics, lambda: datetime.now(UTC))
    return Recording(recorder, Beside(settings.observe_in_flight), log)


def _scorer(name: StageName, stage: Stage) -> dict[str, Any]:
    told = stage.observed
    return {
        "stage": name,
        "fingerprint": asdict(stage.fingerprint),
        "observed": None if told is None else asdict(told),
    }
