"""Put parts side by side as they come: nothing is held twice, and how the queries were split leaves no trace."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade.replay.coded import Coded, Decoding, Values
from cascade.replay.part import Part
from cascade.replay.sweep import Metric, Sweep

__all__ = ["SideBySide", "side_by_side"]


def side_by_side(parts: Sequence[Part]) -> Part:
    """Return the queries of all parts, in their order, as one part. There is at least one."""
    whole = SideBySide(sum(len(part.ids) for part in parts))
    for part in parts:
        whole.add(part)
    return whole.whole()


class SideBySide:
    """Parts of the same sweeps and columns, in room for ``room`` queries, which is taken as it is filled."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._ids: list[str] = []
        self._tables: list[str] = []
        self._slices: dict[str, list[str]] = {}
        self._sweeps: dict[str, _Sweeps] = {}
        self._columns: dict[str, _Filled] = {}
        self._own: int | None = None
        self._never_told: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, part: Part) -> None:
        """Put the queries of a part behind those that are there."""
        at = len(self._ids)
        for name, sweep in part.sweeps.items():
            self._sweeps.setdefault(name, _Sweeps(self._room, sweep)).put(at, sweep)
        for name, column in part.columns.items():
            self._columns.setdefault(name, _Filled(self._room, axis=0)).put(at, column)
        for name, values in part.slices.items():
            # There are few different ones, and parts from another process bring their own copies.
            self._slices.setdefault(name, []).extend(map(sys.intern, values))
        self._ids += part.ids
        self._tables += map(sys.intern, part.tables)
        self._own = part.own
        told = part.never_told
        self._never_told = told if self._never_told is None else self._never_told & told

    def whole(self) -> Part:
        """Return what was put side by side, at least one part."""
        count = len(self._ids)
        return Part(
            ids=tuple(self._ids),
            tables=tuple(self._tables),
            slices={name: tuple(values) for name, values in self._slices.items()},
            sweeps={name: sweeps.whole(count) for name, sweeps in self._sweeps.items()},
            columns={name: filled.first(count) for name, filled in self._columns.items()},
            own=self._own,
            never_told=self._never_told or frozenset(),
        )


class _Filled:
    """An array that is filled along one axis, as wide as its widest piece."""

    def __init__(self, room: int, axis: int) -> None:
        self._room, self._axis = room, axis
        self._array: NDArray[Any] | None = None

    def put(self, at: int, piece: NDArray[Any]) -> None:
        if self._array is None:
            shape = list(piece.shape)
            shape[self._axis] = self._room
            self._array = np.empty(shape, dtype=piece.dtype)
        kind = np.result_type(self._array, piece)
        if kind != self._array.dtype:
            self._array = self._array.astype(kind)
        end = at + piece.shape[self._axis]
        self._array[(slice(None),) * self._axis + (slice(at, end),)] = piece

    def first(self, count: int) -> NDArray[Any]:
        assert self._array is not None  # noqa: S101  # nosec B101 # something was put
        return self._array[(slice(None),) * self._axis + (slice(count),)]


class _FilledCodes:
    """Codes of pieces that each have values of their own, under one numbering."""

    def __init__(self, room: int) -> None:
        self._codes = _Filled(room, axis=1)
        self._numbers: dict[float, int] = {}

    def put(self, at: int, piece: Coded) -> None:
        ours = [self._numbers.setdefault(value, len(self._numbers)) for value in piece.values.tolist()]
        self._codes.put(at, np.array(ours, dtype=np.min_scalar_type(len(self._numbers)))[piece.codes])

    def first(self, count: int) -> Coded:
        return Coded(np.array(list(self._numbers)), self._codes.first(count))


class _Sweeps:
    """The queries of one policy's sweeps. Tokens are known where every one of them counts them."""

    def __init__(self, room: int, like: Sweep) -> None:
        self._like = like
        self._kept: dict[str, _Filled | _FilledCodes] = {
            name: _FilledCodes(room) if isinstance(values, Coded) else _Filled(room, axis=1)
            for name, values in _pieces(like).items()
        }

    def put(self, at: int, sweep: Sweep) -> None:
        if sweep.settings != self._like.settings:
            raise ValueError(f"{sweep.name}: the parts have different settings")
        pieces = _pieces(sweep)
        for name in self._kept.keys() - pieces.keys():
            del self._kept[name]
        for name, filled in self._kept.items():
            filled.put(at, pieces[name])  # type: ignore[arg-type]  # coded where the first one was

    def whole(self, count: int) -> Sweep:
        kept: dict[str, Any] = {name: filled.first(count) for name, filled in self._kept.items()}
        metrics: dict[Metric, Values] = {
            metric: kept["quality" if values is self._like.quality else metric]
            for metric, values in self._like.kept().items()
        }
        return Sweep(
            name=self._like.name,
            settings=self._like.settings,
            quality=kept["quality"],
            pairs=kept["pairs"],
            tokens=kept.get("tokens"),
            metrics=Decoding(metrics),
            judged=kept["judged"],
            engaged=kept["engaged"],
        )


def _pieces(sweep: Sweep) -> dict[str, Values]:
    """Return every array of a sweep by name, each once."""
    metrics = {str(metric): values for metric, values in sweep.kept().items() if values is not sweep.quality}
    tokens = {} if sweep.tokens is None else {"tokens": sweep.tokens}
    return {
        **metrics,
        **tokens,
        "quality": sweep.quality,
        "pairs": sweep.pairs,
        "judged": sweep.judged,
        "engaged": sweep.engaged,
    }
