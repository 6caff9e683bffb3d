"""A split of traffic over releases, served by the pipeline on virtual time and kept as decision records.

A candidate's text is its place, and stages score by place; a query's text names its number and its class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.decision import Ranking
from cascade.guard.beside import Beside
from cascade.pipeline import Pipeline
from cascade.policy.release import Release, parse_release, policy_digest, release_digest
from cascade.replay.logged.deciding import Decider
from cascade.replay.logged.sources import SplitRelease
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer
from cascade.telemetry.records import Assignment, Decided, RecordFormat, Source, is_sampled
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Arm, Candidate, Request, StageName
from tests.scenario import release_data

__all__ = ["CANDIDATES", "Query", "Serving", "Traffic", "made_queries", "orders_of", "serving_of", "traffic"]

CANDIDATES: Final = 12
_BEGAN: Final = datetime(2026, 11, 29, tzinfo=UTC)


@dataclass(frozen=True)
class Query:
    """Scores (12,) by place of each scorer; a candidate that no finite score is there of is refused by its stage."""

    number: int
    text: str
    small: np.ndarray
    large: np.ndarray
    bm25: np.ndarray

    @property
    def hash(self) -> str:
        """Return what stands for the text in records."""
        return _hash(self.text)

    def request(self, **fields: Any) -> Request:
        """Return the request of this query."""
        candidates = tuple(
            Candidate(Text(str(place)), f"d{place}", {"bm25": float(score)}) for place, score in enumerate(self.bm25)
        )
        return Request(Text(self.text), candidates, tenant="acme", **fields)


@dataclass(frozen=True)
class Serving:
    """A release of the split as its file says it, its share, and the calibration that it names."""

    data: Mapping[str, Any]
    share: float = 1.0
    calibration: Calibration | None = None
    sample: float = 1.0

    @property
    def release(self) -> Release:
        """Return the release."""
        return parse_release(dict(self.data))

    @property
    def arm(self) -> SplitRelease:
        """Return it as a release of the split."""
        return SplitRelease(self.release.release, release_digest(self.data), self.share, self.decider)

    @property
    def decider(self) -> Decider:
        """Return what decides as it does."""
        return Decider.of(self.release, self.calibration)


@dataclass
class Traffic:
    """Requests that were served: lines of records, and for each decision its query, release and answer."""

    heads: dict[bytes, None] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    served: dict[str, tuple[Query, int, tuple[int, ...]]] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Write the records to a file."""
        path.write_bytes(b"".join([*self.heads, *self.lines]))
        return path


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def made_queries(count: int, seed: int = 1, *, times: int = 1) -> list[Query]:
    """Return queries, a third with an identifier; ``times`` how often each comes."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        worth = random.normal(size=CANDIDATES)
        text = (
            f"code ERR-{4000 + number}"
            if number % 3 == 0
            else f"how does the lamp burn {'on ' * (number % 50)}{number}"
        )
        noise = (1.0, 0.3, 1.5)
        scores = [worth + error * random.normal(size=CANDIDATES) for error in noise]
        found += [Query(number, text, *scores)] * times
    return found


class _Keeping:
    """Hold each decided request against its release's format."""

    def __init__(self, traffic: Traffic, serving: Serving) -> None:
        release = serving.release
        specs = {"small": release.stages.small, "large": release.stages.large}
        scorers = {
            name: {"stage": name, "fingerprint": asdict(fingerprint_of(spec, serializer(spec.serializer)))}
            | {"observed": None}
            for name, spec in specs.items()
            if spec is not None
        }
        source = Source(
            release, release_digest(serving.data), policy_digest(serving.data), serving.sample, lambda: scorers, _hash
        )
        self._form = RecordFormat(source)
        self._traffic = traffic
        self._sample = serving.sample

    def wants(self, query_hash: str) -> bool:
        """Tell whether a query is in the sample."""
        return is_sampled(query_hash, self._sample)

    def record(self, decided: Decided) -> None:
        """Write it to the traffic's lines."""
        at = _BEGAN + timedelta(seconds=len(self._traffic.lines))
        written = self._form.record(decided, at)
        self._traffic.heads[written.head] = None
        self._traffic.lines.append(written.line)


def traffic(
    queries: Sequence[Query],
    split: Sequence[Serving],
    seed: int = 0,
    *,
    assign: Callable[[Query], int] | None = None,
    probability: Callable[[Query, int], float] = lambda query, arm: 1.0,
    behaves: Callable[[Query, StageName], Mapping[str, Any]] = lambda query, stage: {},
    request: Mapping[str, Any] | None = None,
) -> Traffic:
    """Serve queries by releases drawn by their shares, or as ``assign`` says; ``behaves`` changes scripted stages.

    ``probability`` is what a record tells of how likely its arm was; the second release is the canary.
    """
    if assign is None:
        shares = [each.share for each in split]
        chosen = np.random.default_rng(seed).choice(len(split), p=shares, size=len(queries)).tolist()
    else:
        chosen = [assign(query) for query in queries]
    found = Traffic()
    keeping = [_Keeping(found, each) for each in split]
    faults: list[BaseException] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for at, (query, arm) in enumerate(zip(queries, chosen, strict=True)):
            serving, name = split[arm], f"id-{at}"
            stages = {
                stage: _stage(scores, behaves(query, stage))
                for stage, scores in ((StageName.SMALL, query.small), (StageName.LARGE, query.large))
                if getattr(serving.release.stages, stage.value) is not None
            }
            pipeline = Pipeline(
                serving.release,
                stages,
                calibration=serving.calibration,
                clock=loop.time,
                new_id=partial(str, name),
                hash_query=_hash,
                count_fault=faults.append,
                recorder=keeping[arm],
                beside=Beside(10),
                arm=Arm.CANARY if arm else Arm.STABLE,
            )
            assigned = Assignment(probability(query, arm))
            ranking = await pipeline.rerank(query.request(**(request or {})), assigned=assigned)
            found.served[name] = (query, arm, _places(ranking))
            await asyncio.sleep(1.0)

    run_virtual(serve())
    assert faults == []
    return found


def orders_of(queries: Sequence[Query], serving: Serving) -> list[tuple[int, ...]]:
    """Return what a release answers to each query."""
    return [places for _, _, places in traffic(queries, [serving], assign=lambda query: 0).served.values()]


def _places(ranking: Ranking) -> tuple[int, ...]:
    return tuple(item.index for item in ranking.results)


def _stage(scores: np.ndarray, behaviour: Mapping[str, Any]) -> ScriptedStage:
    return ScriptedStage(
        lambda query, text: float(scores[int(text)]),
        refuses=lambda text: not np.isfinite(scores[int(text)]),
        **behaviour,
    )


def serving_of(name: str, share: float = 1.0, calibration: Calibration | None = None, **changes: Any) -> Serving:
    """Return a release of a name, with fields changed."""
    return Serving(release_data(release=name, **changes), share, calibration)
