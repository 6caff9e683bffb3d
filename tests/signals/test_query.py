"""Identifiers, class and script of a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.signals import Script, classify, count_identifiers, main_script
from cascade.types import QueryClass


@pytest.mark.parametrize(
    "query",
    [
        "order 20481734 status",
        "ticket #381",
        "7f3b2a10-9c1e-4f2a-8b7d-0123456789ab",
        "commit 3f9ac01b",
        "upgrade to 2.14.3",
        "upgrade to v2",
        "python version 3.11",
        "error 0x80070005",
        "ORA-00942 table missing",
        "CVE-2021-44228",
        "HTTP 404 on login",
        "404 error on login",
        "E1234 when starting",
        "エラーE1234が出る",
        "エラーコード 500",
        "오류 코드 500",
        "edit /etc/hosts",
        r"C:\Windows\System32 missing",
        "src/app/main.py fails",
        "requirements.txt pinned",
        'who said "to be or not to be"',
        "who said 'to be or not to be'",
        "「吾輩は猫である」の作者",
        "『こころ』の作者",
        "“exact words”",
        "getUserName fails",
        "NullPointerException",
        "max_length of the tokenizer",
        "os.path.join on windows",
        "call main() twice",
        "pip --no-cache-dir",
        "https://example.com/a?b=c",
        "mail ops@example.com",
    ],
)
def test_exact_identifiers_are_found(query: str) -> None:
    """One is found in each, and the query is of that class."""
    assert count_identifiers(query) == 1
    assert classify(query) is QueryClass.IDENTIFIER


@pytest.mark.parametrize(
    "query",
    [
        "who won the 2010 world cup",
        "don't know what it's about and I can't",
        "music of the 1990s",
        "the 20th century",
        "iPhone battery drains",
        "a dose of 50mg aspirin",
        "top 10 films",
        "mp3 player",
        "1,000,000 yen in dollars",
        "U.S. economy",
        "the end.The start",
        "either his/her choice",
        "a facade",
        "Pythonで配列をソートする方法",
        "한국의 수도는 어디인가요",
        "",
    ],
)
def test_plain_words_are_no_identifiers(query: str) -> None:
    """Years, ordinals, quantities, contractions and names of things are words."""
    assert count_identifiers(query) == 0
    assert classify(query) is not QueryClass.IDENTIFIER


def test_identifiers_are_counted_once_each() -> None:
    """What overlaps is one: an address that holds a version, a quoted path."""
    assert count_identifiers("compare foo_bar with getName in 'a/b/c.py' at https://example.com/v1.2.3") == 4


@pytest.mark.parametrize(
    "query",
    [
        "what is BERT and how does it work",
        "Who wrote it? When was it written?",
        "difference between TCP and UDP",
        "rent versus buy a house in a city",
        "opening hours; parking fees",
        "cheap hotels and good food and museums",
        "TCPとUDPの違い",
        "東京と大阪どちらが広い",
        "返品の条件および送料",
        "首都はどこですか。人口は何人ですか。",
        "首都はどこか、人口は何人か",
        "TCP와 UDP의 차이",
        "반품 조건 및 배송비",
        "수도는 어디이고, 인구는 몇 명인가요?",
        "영업 시간 그리고 주차 요금",
    ],
)
def test_several_questions_make_a_query_multi_part(query: str) -> None:
    """Conjunctions of questions and comparisons, in English, Japanese and Korean."""
    assert classify(query) is QueryClass.MULTI_PART


@pytest.mark.parametrize("query", ["jaguar", "python sort", "rock and roll", "東京", "寿司", "서울 날씨", "погода"])
def test_few_words_that_ask_nothing_are_short_and_ambiguous(query: str) -> None:
    """Short is told by the tokens of the script."""
    assert classify(query) is QueryClass.SHORT_AMBIGUOUS


@pytest.mark.parametrize(
    "query",
    [
        "how is wine made",
        "why rain?",
        "terms and conditions of the annual ticket",
        "日本の首都はどこ",
        "なぜ空は青い",
        "서울은 왜 춥나요",
        "returns of worn shoes without a receipt",
    ],
)
def test_everything_else_is_other(query: str) -> None:
    """A question is not ambiguous for being short."""
    assert classify(query) is QueryClass.OTHER


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("plain words", Script.LATIN),
        ("été à la plage", Script.LATIN),
        ("Pythonで並べ替え", Script.JAPANESE),
        ("カタカナ", Script.JAPANESE),
        ("東京", Script.HAN),
        ("서울 날씨 now", Script.HANGUL),
        ("погода", Script.CYRILLIC),
        ("καιρός", Script.GREEK),
        ("طقس", Script.ARABIC),
        ("מזג אוויר", Script.HEBREW),
        ("मौसम", Script.DEVANAGARI),
        ("อากาศ", Script.THAI),
        ("123 !?", Script.OTHER),
        ("→ €", Script.OTHER),
        ("", Script.OTHER),
        ("\ud800", Script.OTHER),
    ],
)
def test_main_script_is_what_most_tokens_are_in(text: str, script: Script) -> None:
    """Kana tell Japanese from other Han; letters of spaced scripts weigh less than characters of others."""
    assert main_script(text) is script


@given(st.text(max_size=300))
def test_any_text_has_a_class_and_a_script(text: str) -> None:
    """No text raises, and counting beforehand changes nothing."""
    assert classify(text) is classify(text, count_identifiers(text))
    assert isinstance(main_script(text), Script)


@given(st.text(min_size=1, max_size=8))
def test_only_the_beginning_of_a_long_query_is_read(text: str) -> None:
    """What is behind a thousand characters changes neither count nor class."""
    long = (text * 1000)[:1000]
    assert count_identifiers(long + " foo_bar") == count_identifiers(long)
    assert classify(long + " foo_bar") is classify(long)
