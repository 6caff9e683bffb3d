"""What ``cascade tune`` is told: the stage, its weights, lengths, and what is asked of it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade.errors import ConfigError
from cascade.policy.release import OnnxStage, Release, Weights
from cascade.stages.build import round_budget_ms, specs_of
from cascade.stages.weights import find_model
from cascade.tuning.length_sources import (
    lengths_of_file,
    lengths_of_pairs,
    lengths_of_records,
    lengths_of_table,
    read_pairs,
)
from cascade.tuning.lengths import LengthSamples
from cascade.tuning.texts import Words
from cascade.tuning.token_counter import token_counter
from cascade.types import StageName

__all__ = ["LengthsFrom", "TunedStage", "candidates_of", "deadline_of", "stage_of", "with_weights"]

Count = Callable[[str], int]
_MOST_CANDIDATES = 2048
_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}")


@dataclass(frozen=True, slots=True)
class TunedStage:
    """A stage with each of its weights by name, the digests of their files, and how the first ones count tokens."""

    specs: Mapping[str, OnnxStage]
    sha256: Mapping[str, Mapping[str, str]]
    count: Count

    @property
    def words(self) -> Words:
        """Return words that texts are made of."""
        return Words.counted_by(self.count)


@dataclass(frozen=True, slots=True)
class LengthsFrom:
    """Where lengths are from; exactly one is named."""

    lengths: Path | None = None
    table: Path | None = None
    records: Sequence[Path] = ()
    pairs: Path | None = None

    def read(self, count: Count, seed: int) -> tuple[LengthSamples, dict[str, list[str]] | None]:
        """Return the lengths, and the pairs of text where they were named. Raises ConfigError."""
        named = [self.lengths, self.table, self.records or None, self.pairs]
        if sum(each is not None for each in named) != 1:
            raise ConfigError("name exactly one of --lengths, --table, --records and --pairs")
        if self.lengths is not None:
            return lengths_of_file(self.lengths, seed), None
        if self.table is not None:
            return lengths_of_table(self.table, seed), None
        if self.pairs is not None:
            pairs = read_pairs(self.pairs)
            return lengths_of_pairs(self.pairs, pairs, count, seed), pairs
        return lengths_of_records(self.records, seed), None


def stage_of(release: Release, asked: StageName | None) -> tuple[StageName, OnnxStage]:
    """Return the stage that is tuned: the one asked for, else the only one that there is. Raises ConfigError."""
    specs = specs_of(release)
    found = {name: spec for name, spec in specs.items() if isinstance(spec, OnnxStage)}
    if asked is not None:
        if asked in found:
            return asked, found[asked]
        what = f"is {specs[asked].adapter}" if asked in specs else "is not there"
        raise ConfigError(f"--stage {asked}: it {what}; a stage of the adapter onnx can be tuned")
    if len(found) != 1:
        raise ConfigError(
            "--stage: name it, small or large" if found else "the release has no stage of the adapter onnx"
        )
    return next(iter(found.items()))


def with_weights(spec: OnnxStage, named: Sequence[str]) -> TunedStage:
    """Return the stage with each of NAME=FOLDER, else with its own weights, all found and counted. Raises ConfigError."""
    spec = spec.model_copy(update={"tuning": None})
    specs = {"release": spec}
    if named:
        specs = {}
        for written in named:
            name, equals, folder = written.partition("=")
            if not equals or not folder or name in specs or not _NAME.fullmatch(name):
                raise ConfigError("--weights: write NAME=FOLDER, each name once, of letters, digits and ._-")
            specs[name] = spec.model_copy(update={"weights": Weights(folder=folder), "quantization": name})
    digests: dict[str, dict[str, str]] = {}
    for name, each in specs.items():
        files = find_model(each.weights)
        digests[name] = {path.name: _sha256(path) for path in (files.model, files.tokenizer)}
    return TunedStage(specs, digests, token_counter(next(iter(specs.values())).weights))


def candidates_of(written: str) -> tuple[int, ...]:
    """Return the counts of ``20,50,100``, ascending. Raises ConfigError."""
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part[:9]) <= _MOST_CANDIDATES for part in parts):
        raise ConfigError(f"--candidates: write counts from 1 to {_MOST_CANDIDATES}, as in 20,50,100")
    return tuple(sorted(set(map(int, parts))))


def deadline_of(release: Release, stage: StageName, asked: float | None) -> float:
    """Return the deadline asked for, else the time that the release gives a round of the stage, in milliseconds.

    Raises ConfigError for one that is no finite number.
    """
    if asked is not None and not math.isfinite(asked):
        raise ConfigError("--deadline-ms: write a number of milliseconds")
    return round_budget_ms(release, stage) if asked is None else asked


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
