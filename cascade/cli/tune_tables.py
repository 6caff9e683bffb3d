"""What a tuning came to, on a terminal."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from cascade.policy.release import OnePair
from cascade.policy.tuning import Spread, Step, Tuning

__all__ = ["print_tuning"]

_METRICS: Final = {"pairs_per_s": "pairs/s", "goodput_per_s": "in time/s"}
_TIES: Final = (
    "where a lead is within the spread the first value stays, else the simplest that is better than it beyond the spread; "
    "figures of different tables are no comparison"
)


def print_tuning(tuning: Tuning, pair_tokens: float, digest: str, console: Console) -> None:
    """Print each step, cold and warm times, notes, and what to write into settings and release."""
    where, lengths = tuning.conditions, tuning.lengths
    _line(console, f"{tuning.model}: {where.cores} cores of {where.cpu}, onnxruntime {where.onnxruntime}")
    low, middle, high = lengths.pair_tokens.q25, lengths.pair_tokens.q50, lengths.pair_tokens.q90
    _line(console, f"{lengths.source}: {lengths.samples} pairs of {low}, {middle}, {high} tokens (q25, q50, q90)")
    for step in tuning.steps:
        console.print(_step(step))
        for why, values in _refused(step).items():
            _line(console, f"refused: {', '.join(values)}: {why}")
    _line(console, _TIES)
    rate = tuning.chosen.pairs_per_s
    _line(
        console,
        f"throughput: {rate.median:.2f} pairs/s ({rate.least:.2f} to {rate.most:.2f}), measured anew with threads, batch and "
        "precision as chosen: the figure for plans",
    )
    _line(console, f"cold: load {_ms(tuning.cold.load_ms)}, first call {_ms(tuning.cold.first_call_ms)}")
    for each in tuning.warm:
        _line(console, f"warm: {each.candidates} candidates alone {_ms(each.request_ms)}")
    for note in tuning.notes:
        _line(console, f"note: {note}")
    _chosen(tuning, pair_tokens, digest, console)


def _chosen(tuning: Tuning, pair_tokens: float, digest: str, console: Console) -> None:
    chosen = tuning.chosen
    _line(console, f"settings  embedded_threads: {chosen.threads}   max_in_flight: {chosen.max_in_flight}")
    batching = chosen.batching
    if isinstance(batching, OnePair):
        _line(console, "release   batching: {mode: one-pair}")
    else:
        numbers = ", ".join(f"{name}: {value:g}" for name, value in batching if name != "mode")
        _line(console, f"release   batching: {{mode: token-budget}}   # by the tuning: {numbers}")
    _line(console, f'release   tuning: "{digest}"')
    rate = f"{chosen.pairs_per_s.median:.4g},pair_tokens:{pair_tokens:.0f}"
    _line(console, f"capacity  --throughput {tuning.stage}=pairs_per_s:{rate}")


def _step(step: Step) -> Table:
    table = Table(title=f"{step.variable}: {step.chosen} ({step.why})", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("", step.variable, f"{_METRICS[step.metric]}, median", "least", "most", "n"):
        table.add_column(column)
    for trial in step.trials:
        mark = "*" if trial.value == step.chosen else ""
        found = trial.measured
        if found is None:
            continue
        numbers = (f"{value:.2f}" for value in (found.median, found.least, found.most))
        table.add_row(mark, trial.value, *numbers, str(found.n))
    return table


def _refused(step: Step) -> dict[str, list[str]]:
    """Return the values that were not measured, by the reason."""
    found: dict[str, list[str]] = {}
    for trial in step.trials:
        if trial.refused is not None:
            found.setdefault(trial.refused, []).append(trial.value)
    return found


def _ms(spread: Spread) -> str:
    return f"{spread.median:.0f} ms ({spread.least:.0f} to {spread.most:.0f})"


def _line(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)
