"""Estimates of token counts, and clipping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.tokens import beginning_of, clip_to_tokens, estimate_tokens

_MIXED = st.text(alphabet=st.sampled_from("ab 漢字かなハングル한국어ａ\U00020000é\n"), max_size=80)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 1),
        ("a", 1),
        ("seven characters is 2: 1234567", 9),
        ("漢字", 2),
        ("かな", 2),
        ("한국어", 3),
        ("ｆｕｌｌ", 4),
        ("\U00020000\U00020001", 2),
        ("漢字 and more", 5),
        ("éèê" * 7, 6),
    ],
)
def test_an_estimate_counts_cjk_singly_and_the_rest_by_length(text: str, tokens: int) -> None:
    """A CJK character, Hangul and kana among them, is a token; 3.5 other characters are one; nothing is less than one."""
    assert estimate_tokens(text) == tokens


@given(_MIXED, _MIXED)
def test_an_estimate_never_falls_as_text_grows(text: str, more: str) -> None:
    """Adding text at either end never lowers the estimate."""
    assert estimate_tokens(text + more) >= estimate_tokens(text)
    assert estimate_tokens(more + text) >= estimate_tokens(text)


@given(st.text(max_size=80))
def test_an_estimate_lies_between_one_and_the_characters(text: str) -> None:
    """No character is estimated as more than one token."""
    assert 1 <= estimate_tokens(text) <= max(1, len(text))


@given(_MIXED, st.integers(-3, 60), st.none() | st.integers(0, 200))
def test_clipping_only_ever_cuts_at_the_end(text: str, tokens: int, measured: int | None) -> None:
    """What is left is a prefix of the text, never longer."""
    assert text.startswith(clip_to_tokens(text, tokens, measured_tokens=measured))


@given(_MIXED, st.integers(-3, 60), st.none() | st.integers(0, 200))
def test_more_tokens_never_leave_less_text(text: str, tokens: int, measured: int | None) -> None:
    """Clipping is monotone in the tokens asked for."""
    less = clip_to_tokens(text, tokens, measured_tokens=measured)
    assert clip_to_tokens(text, tokens + 1, measured_tokens=measured).startswith(less)


@given(st.integers(1, 300), st.integers(1, 60), st.sampled_from("a漢"))
def test_a_clipped_text_of_one_script_has_at_most_the_tokens_asked_for(length: int, tokens: int, letter: str) -> None:
    """Where tokens are evenly spread, the estimate of what is left is within what was asked for."""
    assert estimate_tokens(clip_to_tokens(letter * length, tokens)) <= tokens


@pytest.mark.parametrize(
    ("tokens", "measured", "kept"),
    [(0, None, 0), (-1, None, 0), (10, None, 31), (29, None, 100), (50, 100, 45), (99, 100, 89), (100, 100, 100)],
)
def test_a_measured_count_sets_the_ratio_and_a_tenth_is_spare(tokens: int, measured: int | None, kept: int) -> None:
    """A hundred letters are cut by their own ratio of characters to tokens, less a tenth."""
    assert len(clip_to_tokens("x" * 100, tokens, measured_tokens=measured)) == kept


def test_clipping_to_a_token_keeps_at_least_a_character() -> None:
    """However many tokens were measured, one token asked for leaves something."""
    assert clip_to_tokens("ab", 1, measured_tokens=10_000) == "a"


@pytest.mark.parametrize("blank", [" ", "\u200b", "\x00", "\ufeff \u3164"])
def test_a_beginning_that_nobody_sees_gives_way_to_what_stands_behind(blank: str) -> None:
    """Else a long text would be sent as an empty one, which some models score above every other."""
    assert beginning_of(blank * 100 + "owls hunt", 6) == "owls h"
    assert beginning_of(blank + "owls hunt", 7) == (blank + "owls hunt")[:7]
    assert beginning_of(blank * 100, 6) == ""
