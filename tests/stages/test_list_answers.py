"""Orders as models write them: read as they are, mended by rule, or refused; never a lost or doubled document."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cascade.stages.answers import AnswerFault, InvalidAnswer
from cascade.stages.list_answers import ReadOrder, read_order

_PIECES = st.sampled_from(
    ["[1]", "[2]", "[3]", "[4]", "[9]", "[0]", "[12345678901]", " > ", ">", ", ", "\n", "[", "]", "1", "2", ",", "- ", "1. ",
     "Sure, here is the order: ", "<think>", "</think>", "```json\n", "[2, 1]", "[3,3", "  ", "…", "[x]"]
)  # fmt: skip
_ANSWERS = st.lists(_PIECES | st.text(max_size=4), max_size=14).map("".join)
_PERMUTATIONS = st.integers(1, 30).flatmap(lambda count: st.permutations(range(1, count + 1)))


def _read(text: str, count: int = 4, *, as_json: bool = False, mends: bool = True, cut: bool = False) -> ReadOrder:
    return read_order(text, count, as_json=as_json, mends=mends, cut=cut)


def _refused(text: str, count: int = 4, *, as_json: bool = False, cut: bool = False) -> AnswerFault:
    with pytest.raises(InvalidAnswer) as caught:
        _read(text, count, as_json=as_json, mends=False, cut=cut)
    return caught.value.fault


def _mended(text: str, count: int, *, as_json: bool, cut: bool) -> ReadOrder | AnswerFault:
    """Return the order that mending makes, or the fault of what it cannot mend."""
    try:
        return _read(text, count, as_json=as_json, cut=cut)
    except InvalidAnswer as invalid:
        return invalid.fault


@given(numbers=_PERMUTATIONS, mends=st.booleans(), space=st.sampled_from([" > ", ">", "\n>\n", "  >"]))
def test_a_permutation_is_read_as_it_is(numbers: list[int], mends: bool, space: str) -> None:
    """Written as it was asked for, with nothing around it: nothing is mended, whatever the rule."""
    expected = ReadOrder(tuple(number - 1 for number in numbers))
    assert _read(space.join(f"[{number}]" for number in numbers), len(numbers), mends=mends) == expected
    assert _read(str(list(numbers)), len(numbers), as_json=True, mends=mends) == expected


@given(answer=_ANSWERS, count=st.integers(1, 6), as_json=st.booleans(), cut=st.booleans())
@example(answer="[" + "1, " * 3000, count=3, as_json=True, cut=True)
def test_whatever_is_written_mending_makes_a_permutation_or_says_that_there_is_no_order(
    answer: str, count: int, as_json: bool, cut: bool
) -> None:
    """No document is lost and none comes twice; what is untouched by mending is what refusing lets through."""
    mended = _mended(answer, count, as_json=as_json, cut=cut)
    if isinstance(mended, AnswerFault):
        assert mended is AnswerFault.NO_ORDER
        assert _refused(answer, count, as_json=as_json, cut=cut) is not None
        return
    assert sorted(mended.positions) == list(range(count))
    if mended.repaired:
        assert _refused(answer, count, as_json=as_json, cut=cut) is not None
    elif not cut:
        assert _read(answer, count, as_json=as_json, mends=False) == mended


@pytest.mark.parametrize(
    ("answer", "order", "repaired", "fault"),
    [
        ("[2] > [2] > [1] > [3] > [4]", (1, 0, 2, 3), 1, AnswerFault.DUPLICATE_INDEX),
        ("[2] > [9] > [1] > [3] > [4]", (1, 0, 2, 3), 1, AnswerFault.BAD_INDEX),
        ("[0] > [4] > [3] > [2] > [1]", (3, 2, 1, 0), 1, AnswerFault.BAD_INDEX),
        ("[3] > [1]", (2, 0, 1, 3), 2, AnswerFault.WRONG_COUNT),
        ("[4]", (3, 0, 1, 2), 3, AnswerFault.WRONG_COUNT),
        ("The order is [4] > [3] > [2] > [1].", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("Of [1] and [2], better: [4] > [3] > [2] > [1]", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("1. [4]\n2. [3]\n3. [2]\n4. [1]", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("[4], [3], [2], [1]", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("[4, 3, 2, 1]", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("[1] and [2] are close. Order: [4, 3, 2, 1]", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("[4] 3, at least\n[3] 2, or less\n[2] 1, [1]", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("```json\n[4, 3, 2, 1]\n```", (3, 2, 1, 0), 1, AnswerFault.NOT_BARE),
        ("[4] > [3] > [2] > [1", (3, 2, 1, 0), 2, AnswerFault.NOT_BARE),
    ],
)
def test_what_can_be_mended_is_mended_and_counted_or_refused_by_name(
    answer: str, order: tuple[int, ...], repaired: int, fault: AnswerFault
) -> None:
    """Of what comes twice the first counts, what is not there is dropped, what is missing follows in the order given."""
    assert _read(answer) == ReadOrder(order, repaired)
    assert _refused(answer) is fault


@pytest.mark.parametrize(
    "answer",
    ["", " \n", "I cannot help with that.", "[9] > [8]", "[0]", "<think>[1] > [2] > [3] > [4]", "<think>a</think>",
     "[12345678901]", "[x] > [y]", "4 3 2 1"],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True])
def test_an_answer_that_names_no_passage_is_none(answer: str, as_json: bool) -> None:
    """Then there is nothing to mend: whatever came out would be the order that was sent."""
    with pytest.raises(InvalidAnswer, match="no_order"):
        _read(answer, as_json=as_json)


@pytest.mark.parametrize(
    "thinking", ["<think>\n[1] > [2] first\n</think>\n\n", "[1] is best, so </think>", "<think></think>"]
)
def test_what_a_model_thinks_is_no_part_of_its_answer(thinking: str) -> None:
    """Thinking that has ended is taken off under either rule, and nothing counts as mended."""
    for mends in (True, False):
        assert _read(thinking + "[4] > [3] > [2] > [1]", mends=mends) == ReadOrder((3, 2, 1, 0))


def test_a_cut_answer_keeps_what_was_written_whole() -> None:
    """The last number of an array may have been cut inside; one in brackets is whole when they close."""
    assert _read("[3, 1", cut=True, as_json=True) == ReadOrder((2, 0, 1, 3), 4)
    assert _read("[3] > [1", cut=True) == ReadOrder((2, 0, 1, 3), 4)
    assert _refused("[3] > [1]", cut=True) is AnswerFault.CUT_ORDER
    assert _refused("[3] > [1] > [2] > [4]", cut=True) is AnswerFault.CUT_ORDER


@pytest.mark.parametrize("answer", ["[1.0, 2, 3, 4]", "[true, 2, 3, 4]", '["1", 2, 3, 4]', '{"order": [1]}', "[]", "3"])
def test_an_array_of_anything_but_integers_is_no_bare_order(answer: str) -> None:
    """Of JSON, only an array of integers counts as the form that was asked for."""
    assert _refused(answer, as_json=True) in {AnswerFault.NO_ORDER, AnswerFault.NOT_BARE}


@pytest.mark.parametrize(
    "answer", ["[1]" + " " * 300_000, "[1] > " * 50_000, "[" * 100_000, "[1" * 100_000, "[1, " * 50_000]
)
def test_a_long_answer_is_read_once(answer: str) -> None:
    """An answer that is a megabyte of nothing takes no longer than its length: this ends."""
    for as_json in (False, True):
        mended = _mended(answer + "x", 4, as_json=as_json, cut=True)
        if isinstance(mended, ReadOrder):
            assert sorted(mended.positions) == [0, 1, 2, 3]
        else:
            assert mended is AnswerFault.NO_ORDER
