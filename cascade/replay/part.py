"""What some queries give when they are replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from cascade.replay.sweep import Sweep

__all__ = ["Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """What some queries give: ids, values of the sliced attributes, sweeps (S, Q), and columns (Q, ...) of sections.

    ``own`` is the policy's own setting, None without a policy. ``never_told`` names the signals that its rules
    read and no query tells.
    """

    ids: tuple[str, ...]
    tables: tuple[str, ...]
    slices: Mapping[str, tuple[str, ...]]
    sweeps: Mapping[str, Sweep]
    columns: Mapping[str, NDArray[Any]]
    own: int | None = None
    never_told: frozenset[str] = field(default_factory=frozenset)
