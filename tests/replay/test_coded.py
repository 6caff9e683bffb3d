"""Numbers kept as codes are the numbers, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cascade.metrics import Gain
from cascade.replay import baselines
from cascade.replay.coded import Coded, Decoding, decoded, taken, whole_numbers
from cascade.replay.partition import Replaying, replay_part
from cascade.replay.points import at_pairs
from cascade.replay.queries import replayed
from cascade.replay.question import Question
from cascade.replay.side_by_side import SideBySide, side_by_side
from cascade.replay.sweep import Metric, Sweep
from tests.replay.made import ROLES, made_queries, made_table

_NUMBERS = np.array([[0.1, 1 / 3, 0.1], [1 / 3, 0.0, np.nan]])


def test_codes_say_the_same_numbers() -> None:
    """Whole, by rows and by queries; one that is coded already stays."""
    coded = Coded.of(_NUMBERS)
    assert coded.codes.dtype == np.uint8
    assert np.array_equal(decoded(coded), _NUMBERS, equal_nan=True)
    assert np.array_equal(decoded(coded, np.array([1])), _NUMBERS[[1]], equal_nan=True)
    assert np.array_equal(decoded(taken(coded, (slice(None), [2, 0]))), _NUMBERS[:, [2, 0]], equal_nan=True)
    assert Coded.of(coded) is coded
    assert Coded.of(np.arange(300.0)[None]).codes.dtype == np.uint16


def test_counts_are_narrow_where_nothing_is_lost() -> None:
    """Whole numbers become 32-bit ones; a fraction, NaN and one that is too large keep all as they were."""
    assert whole_numbers(np.array([1.0, 1e6])).dtype == np.int32
    for kept in ([0.5, 1.0], [np.nan, 1.0], [1e12, 1.0]):
        assert whole_numbers(np.array(kept)).dtype == np.float64


def _sweep() -> Sweep:
    queries = made_queries(20, 10)
    return baselines.static(queries, 5, Metric.NDCG, baselines.small_ranks(queries), most=10)


def test_a_compact_sweep_is_the_same_sweep() -> None:
    """Each array, some queries of it, and some settings."""
    sweep = _sweep()
    small = sweep.compact()
    assert small.pairs.dtype == np.int32
    assert isinstance(small.metrics, Decoding)
    assert list(small.metrics) == list(sweep.metrics)
    assert len(small.metrics) == 4
    assert small.metrics.kept[Metric.NDCG] is sweep.quality
    chosen = np.array([3, 1])
    for ours, theirs in (
        (small, sweep),
        (small.take(chosen), sweep.take(chosen)),
        (small.used(chosen), sweep.used(chosen)),
    ):
        assert ours.settings == theirs.settings
        assert all(np.array_equal(ours.metrics[metric], theirs.metrics[metric]) for metric in Metric)
        assert np.array_equal(decoded(ours.judged), decoded(theirs.judged))
        assert ours.tokens is not None
        assert theirs.tokens is not None
        assert np.array_equal(ours.tokens, theirs.tokens)
        assert np.array_equal(ours.pairs, theirs.pairs)
        assert np.array_equal(ours.engaged, theirs.engaged)
    assert sweep.used(chosen).settings == (7.0, 9.0)


def test_a_point_reads_codes_as_numbers() -> None:
    """Between two settings the coin weighs the same values, and the point alone is the point."""
    sweep = _sweep()
    point, small = at_pairs(sweep, 3.5, "why"), at_pairs(sweep.compact(), 3.5, "why")
    values = point.mean(sweep.metrics[Metric.MRR])
    assert np.array_equal(small.mean(small.sweep.kept()[Metric.MRR]), values)
    alone = small.alone(np.array([4, 2]))
    assert alone.settings() == point.settings()
    assert np.array_equal(alone.mean(alone.sweep.metrics[Metric.MRR]), values[[4, 2]])


def test_parts_with_other_values_share_one_numbering() -> None:
    """Codes of one part are not those of another; wider ones widen the whole."""
    queries = made_queries(40, 20)
    question = Question(ROLES, k=5)
    found = replayed([made_table()], ROLES, 5, Gain.LINEAR)
    whole = replay_part("t", found, Replaying(question, 20))
    assert whole is not None
    room = SideBySide(50)
    assert len(room) == 0
    for start in range(0, 40, 8):
        cut = replayed([made_table().take(range(start, start + 8))], ROLES, 5, Gain.LINEAR)
        part = replay_part("t", cut, Replaying(question, 20))
        assert part is not None
        room.add(part)
    assert len(room) == len(queries)
    split = room.whole()
    for name, sweep in whole.sweeps.items():
        assert all(np.array_equal(sweep.metrics[metric], split.sweeps[name].metrics[metric]) for metric in Metric)
        assert np.array_equal(decoded(sweep.judged), decoded(split.sweeps[name].judged))
    assert {name: values.dtype for name, values in whole.columns.items()} == {
        name: values.dtype for name, values in split.columns.items()
    }


def test_parts_of_other_settings_do_not_go_together() -> None:
    """Static up to 20 and up to 21 candidates are two sweeps."""
    found = replayed([made_table()], ROLES, 5, Gain.LINEAR)
    parts = [replay_part("t", found, Replaying(Question(ROLES, k=5), most)) for most in (20, 21)]
    with pytest.raises(ValueError, match="static: the parts have different settings"):
        side_by_side([part for part in parts if part is not None])


def test_tokens_are_known_where_every_part_counts_them() -> None:
    """One part without the column leaves the whole without."""
    with_tokens = replayed([made_table(4)], ROLES, 5, Gain.LINEAR)
    without = replayed([made_table(4, seed=2, attributes={})], ROLES, 5, Gain.LINEAR)
    parts = [replay_part("t", found, Replaying(Question(ROLES, k=5), 20)) for found in (with_tokens, without)]
    whole = side_by_side([part for part in parts if part is not None])
    assert whole.sweeps["large"].tokens is None
    assert whole.sweeps["large"].pairs.tolist() == [[20] * 8]


def test_a_column_is_as_wide_as_its_widest_piece() -> None:
    """Words of a later part that are longer are not cut, and its fractions not rounded."""
    found = replayed([made_table(2)], ROLES, 5, Gain.LINEAR)
    part = replay_part("t", found, Replaying(Question(ROLES, k=5), 20))
    assert part is not None
    room = SideBySide(4)
    room.add(replace(part, columns={"x.word": np.array(["", "a"]), "x.number": np.array([1, 2])}))
    room.add(replace(part, columns={"x.word": np.array(["long", "b"]), "x.number": np.array([0.5, 2.0])}))
    columns = room.whole().columns
    assert columns["x.word"].tolist() == ["", "a", "long", "b"]
    assert columns["x.number"].tolist() == [1.0, 2.0, 0.5, 2.0]
