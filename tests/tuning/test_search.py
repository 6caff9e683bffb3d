"""The search: one variable at a time, ties to the value that stands first, and only weights that score alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import OnePair, TokenBudget
from cascade.tuning.allowance import Least
from cascade.tuning.search import Found, Search, thread_counts
from cascade.tuning.setting import Batching, Setting
from tests.tuning.made import FormulaBench

_ONE_PAIR = OnePair(mode="one-pair")


def _budget(tokens: int, **numbers: Any) -> TokenBudget:
    return TokenBudget(mode="token-budget", max_total_tokens=tokens, **numbers)


def _found(
    bench: FormulaBench,
    start: Batching = _ONE_PAIR,
    weights: tuple[str, ...] = ("release",),
    cores: int = 4,
    told: Callable[[str], None] = lambda what: None,
) -> Found:
    search = Search(
        bench,
        weights,
        cores=cores,
        mean_candidates=50.0,
        clock=lambda: 0.0,
        seconds=100.0,
        repeats=3,
        seed=1,
        told=told,
    )
    return asyncio.run(search.run(Setting(cores, start, weights[0], 64)))


def _steps(found: Found) -> dict[str, str]:
    return {step.variable: step.chosen for step in found.steps}


def test_threads_to_try_are_the_cores_and_powers_of_two_below() -> None:
    """The default stands first: as many threads as cores."""
    assert thread_counts(1) == (1,)
    assert thread_counts(2) == (2, 1)
    assert thread_counts(6) == (6, 1, 2, 4)
    assert thread_counts(8) == (8, 1, 2, 4)


def test_each_variable_is_chosen_with_the_others_held() -> None:
    """A formula whose best is known is found: threads, budget, pairs, wait, budget by goodput, and seats."""

    def pairs(setting: Setting, repeat: int) -> float:
        batch = setting.batching
        size = 1.0 if isinstance(batch, OnePair) else 2.0 + (batch.max_total_tokens == 1024) + (batch.max_pairs == 16)
        return 10.0 * size * (2.0 if setting.threads == 2 else 1.0) + 0.001 * repeat

    def goodput(setting: Setting, repeat: int) -> float:
        batch = setting.batching
        assert isinstance(batch, TokenBudget)
        return (
            (batch.max_wait_ms == 4.0) + (batch.max_total_tokens == 512) + (setting.max_in_flight == 8) + 1e-4 * repeat
        )

    found = _found(FormulaBench(pairs, goodput))
    assert _steps(found) == {
        "threads": "2",
        "batch": "1024 tokens",
        "max_pairs": "16",
        "max_wait_ms": "4",
        "max_total_tokens": "512",
        "max_in_flight": "8",
    }
    assert found.setting == Setting(2, _budget(512, max_pairs=16, max_wait_ms=4.0), "release", 8)
    assert found.pairs_per_s.median == pytest.approx(80.001)


def test_what_ties_keeps_what_was_there() -> None:
    """Where nothing differs beyond the spread, the setting that the search began from is the answer."""
    start = _budget(3000, max_pairs=24, max_wait_ms=1.0)
    found = _found(FormulaBench(lambda setting, repeat: 10.0 + repeat, lambda setting, repeat: 1.0 + repeat), start)
    assert found.setting == Setting(4, start, "release", 64)
    tie = "the best median, in a tie with one-pair, 256 tokens, 512 tokens, 1024 tokens, 2048 tokens, 4096 tokens"
    assert [step.why for step in found.steps if step.variable == "batch"] == [tie]


def test_a_small_lead_within_the_spread_is_a_tie() -> None:
    """Fewer threads that are faster in the median, and no faster than the default's best, are not chosen."""

    def pairs(setting: Setting, repeat: int) -> float:
        return (10.0, 11.0, 12.0)[repeat] + (0.5 if setting.threads == 1 else 0.0)

    found = _found(FormulaBench(pairs), cores=2)
    assert _steps(found)["threads"] == "2"
    assert found.steps[0].why == "a tie within the spread with 1, 11.5 to 11"


def test_a_value_that_is_no_better_than_what_was_there_is_not_chosen_for_a_tie_with_the_best() -> None:
    """One seat may be as good as eight, and as bad as the setting, which eight are better than: four are both."""
    rates = {
        64: (60, 85, 110),
        1: (70, 95, 120),
        2: (80, 110, 140),
        4: (119, 120, 121),
        8: (118, 130, 140),
        16: (1, 2, 3),
    }
    bench = FormulaBench(
        lambda setting, repeat: 10.0, lambda setting, repeat: float(rates[setting.max_in_flight][repeat])
    )
    step = _found(bench).steps[-1]
    assert (step.chosen, step.why) == ("4", "a tie within the spread with 8, 130 to 120")


def test_a_model_that_is_refused_in_batches_stays_one_pair_a_call() -> None:
    """Every budget is told as refused with its reason, and the numbers of batches are not searched."""
    why = "batching: scores of this model move by up to 0.612 with their batch mates; use one-pair"
    bench = FormulaBench(
        lambda setting, repeat: 10.0, refuses=lambda setting: None if setting.batching == _ONE_PAIR else why
    )
    found = _found(bench)
    batch = next(step for step in found.steps if step.variable == "batch")
    assert [trial.refused for trial in batch.trials] == [None, *[why] * 5]
    assert set(_steps(found)) == {"threads", "batch", "max_in_flight"}
    assert found.setting.batching == _ONE_PAIR


def test_a_release_in_batches_that_its_model_refuses_is_refused() -> None:
    """Nothing can be tuned of a stage that does not start as its release says; the reason is the model's."""
    bench = FormulaBench(lambda setting, repeat: 10.0, refuses=lambda setting: "no such weights")
    with pytest.raises(ConfigError, match="no such weights"):
        _found(bench)


def test_weights_that_score_otherwise_are_not_chosen_however_fast() -> None:
    """What is outside parity is refused with its reason, and never measured."""
    speed = {"fp32": 10.0, "int8": 99.0, "static": 30.0}
    bench = FormulaBench(
        lambda setting, repeat: speed[setting.weights] + 0.1 * repeat, unlike={"int8": "outside parity: max_error"}
    )
    found = _found(bench, weights=("fp32", "int8", "static"))
    step = next(step for step in found.steps if step.variable == "precision")
    assert {trial.value: trial.refused for trial in step.trials}["int8"] == "outside parity: max_error"
    assert found.setting.weights == "static"
    assert all(setting.weights != "int8" for _, setting, _, _ in bench.asked)


def test_each_precision_is_compared_at_its_own_best_batch() -> None:
    """One that may be batched is not held back by a reference that may not."""

    def pairs(setting: Setting, repeat: int) -> float:
        return 10.0 if setting.weights == "int8" else (30.0 if setting.batching != _ONE_PAIR else 5.0) + 0.1 * repeat

    bench = FormulaBench(
        pairs, refuses=lambda setting: "varies" if setting.weights == "int8" and setting.batching != _ONE_PAIR else None
    )
    found = _found(bench, weights=("int8", "fp32"))
    assert found.setting.weights == "fp32"
    assert isinstance(found.setting.batching, TokenBudget)


def test_repeats_go_in_turns_and_trials_share_the_time() -> None:
    """All values of a step are measured once before any is measured again, for as long as the time allows."""
    bench = FormulaBench(lambda setting, repeat: 10.0)
    _found(bench, cores=2)
    threads = [(setting.threads, repeat) for _, setting, repeat, _ in bench.asked[:6]]
    assert [repeat for _, repeat in threads] == [0, 0, 1, 1, 2, 2]
    assert {count for count, _ in threads[:2]} == {count for count, _ in threads[4:]} == {1, 2}
    assert all(seconds > 0 for _, _, _, seconds in bench.asked)
    closed = [seconds for metric, _, _, seconds in bench.asked if metric == "pairs_per_s"]
    opened = [seconds for metric, _, _, seconds in bench.asked if metric == "goodput_per_s"]
    assert min(opened) > max(closed)
    assert len(set(opened)) == 1


def test_the_open_loop_offers_nine_tenths_of_what_was_done_closed() -> None:
    """Of 100 pairs a second with 50 candidates a request, 1.8 requests a second come."""
    bench = FormulaBench(lambda setting, repeat: 100.0)
    found = _found(bench)
    assert found.offered_per_s == pytest.approx(1.8)
    assert set(bench.rates) == {found.offered_per_s}


def test_goodput_of_nothing_keeps_the_default() -> None:
    """Where no request is in time with any value, none is better."""
    found = _found(FormulaBench(lambda setting, repeat: 10.0, lambda setting, repeat: 0.0))
    assert found.setting.max_in_flight == 64
    assert found.steps[-1].why == "nothing was measured above 0: the first value stands"


def test_how_long_it_takes_is_told_before_anything_is_tried() -> None:
    """28 values of 3 repeats: 15 closed ones of a second and 13 open ones of 2; then each step when it begins."""
    heard: list[str] = []
    _found(FormulaBench(lambda setting, repeat: 10.0, least=Least(0.5, 1.0, 2.0)), cores=2, told=heard.append)
    assert heard == [
        "load, check and estimate",
        "84 trials at most in about 123 s, 123 s at the least; loading took 0.5 s",
        "threads",
        "batch",
        "throughput",
        "max_in_flight",
    ]


def test_a_search_that_cannot_be_done_in_about_the_time_asked_is_refused() -> None:
    """Before any trial: a minute over what was asked is about it, more is not."""
    bench = FormulaBench(lambda setting, repeat: 10.0, least=Least(0.5, 2.0, 3.0))
    with pytest.raises(
        ConfigError, match=r"^--seconds 100: 84 trials of a request or two each take about 207 s here; "
    ):
        _found(bench, cores=2)
    assert bench.asked == []
