"""From timed requests to the CPU benchmark's figures, tables and aims. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

__all__ = ["Cell", "aims", "figures", "greatest_difference", "summary", "table"]

_AIMS: Final = (("default", 1.5, "its defaults"), ("best", 1.25, "its best setting"))
_LEAST: Final = 1.0


@dataclass(slots=True)
class Cell:
    """One engine on one workload: the seconds of its requests, round by round, and how far its scores are off."""

    pairs: int
    rounds: list[list[float]] = field(default_factory=list)
    difference: float = 0.0

    @property
    def rates(self) -> list[float]:
        """Return pairs a second of each round."""
        return [self.pairs / sum(seconds) for seconds in self.rounds]

    @property
    def p95_ms(self) -> float:
        """Return the 95th percentile of a request's time over all rounds, by nearest rank."""
        ordered = sorted(seconds for one in self.rounds for seconds in one)
        return ordered[math.ceil(0.95 * len(ordered)) - 1] * 1000


Cells = Mapping[str, Mapping[str, Cell]]


def greatest_difference(ours: Sequence[Sequence[float]], reference: Sequence[Sequence[float]], output: str) -> float:
    """Return the largest difference of raw scores; probabilities are turned back into logits, 0 and 1 into infinite ones."""
    raw = ours if output == "logit" else [[_logit(score) for score in scores] for scores in ours]
    return max(abs(one - other) for a, b in zip(raw, reference, strict=True) for one, other in zip(a, b, strict=True))


def _logit(probability: float) -> float:
    if not 0.0 < probability < 1.0:
        return math.copysign(math.inf, probability - 0.5)
    return math.log(probability / (1.0 - probability))


def figures(cells: Cells) -> dict[str, dict[str, dict[str, float]]]:
    """Return pairs a second, the median over rounds, and the 95th percentile of a request, by engine and workload."""
    return {
        engine: {
            workload: {"pairs_per_s": round(median(cell.rates), 3), "p95_ms": round(cell.p95_ms, 2)}
            for workload, cell in of_engine.items()
        }
        for engine, of_engine in cells.items()
    }


def summary(cells: Cells) -> dict[str, dict[str, dict[str, float]]]:
    """Return what stands beside the figures: spread over rounds, how many, and the greatest difference of scores."""
    return {
        engine: {
            workload: {
                "least_pairs_per_s": round(min(cell.rates), 3),
                "most_pairs_per_s": round(max(cell.rates), 3),
                "rounds": len(cell.rounds),
                "greatest_difference": cell.difference,
            }
            for workload, cell in of_engine.items()
        }
        for engine, of_engine in cells.items()
    }


def table(cells: Cells, peaks: Mapping[str, float]) -> str:
    """Return a Markdown table: pairs a second with least and greatest, 95th percentile, difference, and memory."""
    workloads = list(dict.fromkeys(workload for of_engine in cells.values() for workload in of_engine))
    head = [f"{name}, pairs/s | p95, ms | scores off by" for name in workloads]
    lines = [f"| engine | {' | '.join(head)} | peak, MiB |", "|---|" + "---:|" * (3 * len(workloads) + 1)]
    for engine, of_engine in cells.items():
        told = []
        for name in workloads:
            cell = of_engine.get(name)
            if cell is None:
                told.append(" | | ")
                continue
            rates = cell.rates
            told.append(
                f"{median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f}) | {cell.p95_ms:.0f} | {cell.difference:.1e}"
            )
        lines.append(f"| {engine} | {' | '.join(told)} | {peaks.get(engine, 0.0):.0f} |")
    return "\n".join(lines)


def aims(cells: Cells, own: str, peers: Iterable[str], *, right: Iterable[str]) -> list[str]:
    """Return what the project aims at beside what was measured, a line each; without figures it is left out.

    ``peers`` are the names of default settings and, with ``-best`` in them, of best ones; ``right`` those of them whose
    scores are the model's: an engine that scores something else is no peer.
    """
    lines, rates = [], {name: _rates(of_engine) for name, of_engine in cells.items()}
    ours, known = rates.get(own, {}), set(right)
    counted = {name: rates[name] for name in peers if name in rates and name in known}
    settings = {
        "default": {name: of for name, of in counted.items() if "-best" not in name},
        # where no batch size can be chosen, or the default is the best, that is the best setting
        "best": counted if any("-best" in name for name in counted) else {},
    }
    for kind, least, words in _AIMS:
        fastest = _fastest(settings[kind], "mixed")
        if fastest is not None and "mixed" in ours:
            name, rate = fastest
            lines.append(
                f"{own} on mixed: {ours['mixed'] / rate:.2f} times {name}, the best peer at {words}; aim {least}"
            )
    for workload, rate in ours.items():
        fastest = _fastest(counted, workload)
        if fastest is not None and workload != "mixed":
            lines.append(f"{own} on {workload}: {rate / fastest[1]:.2f} times {fastest[0]}; aim {_LEAST}")
    return lines


def _rates(of_engine: Mapping[str, Cell]) -> dict[str, float]:
    return {workload: median(cell.rates) for workload, cell in of_engine.items() if cell.rounds}


def _fastest(peers: Mapping[str, Mapping[str, float]], workload: str) -> tuple[str, float] | None:
    known = [(name, of[workload]) for name, of in peers.items() if workload in of]
    return max(known, key=lambda item: item[1]) if known else None
