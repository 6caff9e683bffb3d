"""A bench that is a formula, and a tuning to write down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cascade.errors import ConfigError
from cascade.policy.tuning import Tuning
from cascade.tuning.allowance import Least
from cascade.tuning.setting import Setting

__all__ = ["FormulaBench", "tuning_data", "tuning_of"]


@dataclass(slots=True)
class FormulaBench:
    """Answer by functions of the setting and the repeat, without noise but what they make.

    ``asked`` has what was measured, in order: the metric, the setting, the repeat and the seconds.
    """

    pairs: Callable[[Setting, int], float]
    goodput: Callable[[Setting, int], float] = lambda setting, repeat: 1.0
    unlike: dict[str, str] = field(default_factory=dict)
    refuses: Callable[[Setting], str | None] = lambda setting: None
    least: Least = field(default_factory=lambda: Least(began_s=0.5, closed_s=0.01, open_s=0.02))
    asked: list[tuple[str, Setting, int, float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def least_s(self, setting: Setting) -> Least:
        return self.least

    async def pairs_per_s(self, setting: Setting, repeat: int, seconds: float) -> float:
        return self._measured("pairs_per_s", setting, repeat, seconds, self.pairs)

    async def goodput_per_s(self, setting: Setting, repeat: int, seconds: float, rate: float) -> float:
        self.rates.append(rate)
        return self._measured("goodput_per_s", setting, repeat, seconds, self.goodput)

    async def unlike_first(self, weights: str) -> str | None:
        return self.unlike.get(weights)

    def _measured(
        self, metric: str, setting: Setting, repeat: int, seconds: float, formula: Callable[[Setting, int], float]
    ) -> float:
        if (why := self.refuses(setting)) is not None:
            raise ConfigError(why)
        self.asked.append((metric, setting, repeat, seconds))
        return formula(setting, repeat)


def tuning_data(**changes: Any) -> dict[str, Any]:
    """Return a tuning as its file has it, changed by some keys of the top."""
    spread = {"median": 40.0, "least": 38.0, "most": 41.0, "n": 3}
    quantiles = {"q0": 3, "q25": 5, "q50": 8, "q75": 9, "q90": 12, "q99": 20, "q100": 30}
    return {
        "format": "cascade-tuning/1",
        "stage": "large",
        "model": "m",
        "max_length": 512,
        "weights": {"name": "release", "sha256": {"model.onnx": "a" * 64}},
        "conditions": {
            "date": datetime(2026, 11, 30, tzinfo=UTC).isoformat(),
            "cascade": "0.1.0",
            "python": "3.11.7",
            "onnxruntime": "1.23.0",
            "tokenizers": "0.22.0",
            "os": "Linux",
            "cpu": "Some Processor",
            "instructions": ["avx2", "avx512_vnni"],
            "cores": 2,
            "load_average": 0.1,
        },
        "lengths": {"source": "lengths a.txt", "samples": 4, "query_tokens": quantiles, "pair_tokens": quantiles},
        "asked": {"candidates": [20, 50], "deadline_ms": 500.0, "seconds": 60.0, "repeats": 3, "seed": 0},
        "offered_per_s": 1.5,
        "steps": [
            {
                "variable": "threads",
                "metric": "pairs_per_s",
                "trials": [{"value": "2", "measured": spread}, {"value": "1", "refused": "no"}],
                "chosen": "2",
                "why": "nothing else could be measured",
            }
        ],
        "cold": {"load_ms": spread, "first_call_ms": spread},
        "warm": [{"candidates": 20, "request_ms": spread}],
        "chosen": {
            "threads": 2,
            "max_in_flight": 64,
            "batching": {"mode": "token-budget", "max_total_tokens": 1024, "max_pairs": 16, "max_wait_ms": 2.0},
            "pairs_per_s": spread,
        },
        **changes,
    }


def tuning_of(**changes: Any) -> Tuning:
    """Return a tuning, changed by some keys of the top."""
    return Tuning.model_validate(tuning_data(**changes), strict=False)
