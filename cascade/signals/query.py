# ruff: noqa: RUF001 - the patterns name typographic and full-width marks on purpose
"""What the query alone tells: identifiers, and a class out of a closed list."""

from __future__ import annotations

import re
from typing import Final

from cascade.signals.script import Script, main_script
from cascade.tokens import estimate_tokens
from cascade.types import QueryClass

__all__ = ["MOST_CHARACTERS", "classify", "count_identifiers"]

MOST_CHARACTERS: Final = 1000
"""Of a longer query only the beginning is looked at, so that the time is bounded."""

_IDENTIFIERS: Final = re.compile(
    r"""
      (?<!\w) [a-z][a-z0-9+.-]{1,15} :// [^\s<>"]{1,500}                                  # address
    | (?<![\w.+-]) [\w.+-]{1,64} @ [\w-]{1,63} (?: \.[\w-]{1,63} ){1,5}                   # mail
    | " [^"\n]{2,100} " | “ [^”\n]{2,100} ” | ` [^`\n]{2,100} `                           # quoted
    | 「 [^」\n]{2,100} 」 | 『 [^』\n]{2,100} 』 | « [^»\n]{2,100} »
    | (?<![\w'’]) ' [^'\n]{2,100} ' (?![\w'’])
    | (?<!\w) [0-9a-f]{8} (?: -[0-9a-f]{4} ){3} - [0-9a-f]{12} (?!\w)                     # UUID
    | (?<!\w) 0x[0-9a-f]{2,64} (?!\w)                                                     # hexadecimal
    | (?<!\w) (?= [a-f]{0,63}[0-9] ) (?= [0-9]{0,63}[a-f] ) [0-9a-f]{8,64} (?!\w)
    | (?<![\w:/.]) (?: [a-z]: \\ | ~/ | \.{1,2}/ | / ) [\w.-]{1,64} (?: [/\\] [\w.-]{1,64} ){0,20}   # path
    | (?<![\w:/.]) [\w.-]{1,64} (?: [/\\] [\w.-]{1,64} ){2,20}
    | (?<![\w.]) [\w-]{1,64} \. (?: py|js|ts|java|go|rs|cpp|hpp|rb|php|sh|sql|json|ya?ml|toml|xml|html?|css|csv|txt
        |md|pdf|docx?|xlsx?|pptx?|png|jpe?g|zip|gz|exe|dll|so|log|conf|cfg|ini|env|lock|ipynb ) (?!\w)
    | (?<![\w.]) v? \d{1,5} (?: \.\d{1,5} ){2,4} (?: -? [a-z]{1,8} \.? \d{0,4} )? (?![\w.]\w)        # version
    | (?<![\w.]) v \d{1,5} (?: \.\d{1,5} )? (?!\w)
    | (?<!\w) (?: version | ver\.? | バージョン | 버전 ) \s? \d{1,5} (?: \.\d{1,5} )? (?!\w)
    | (?: http | error | errno | code | status | exception | エラー | コード | 오류 | 에러 | 코드 )
        (?: \s? (?: code | コード | 코드 ) )? \s? [:#-]? \s? (?= [a-z-]{0,8}\d ) [\w-]{2,32}         # error code
    | (?<!\w) \d{3,10} \s? (?: error | エラー | 오류 | 에러 )
    | (?<!\w) [a-z]{1,10} (?: -[a-z]{1,10} ){0,2} (?: -\d{1,10} ){1,3} [a-z]? (?!\w)      # CVE-2021-44228, ORA-00942
    | (?<!\w) [a-z]{1,8} \d{2,12} (?: -? [a-z0-9]{1,12} ){0,3} (?!\w)                     # E1234, RTX4090
    | (?<!\w) [\#№] \d{1,12} (?!\w) | (?<![\w.,]) \d{6,20} (?![\w.,]\d)                   # number
    | (?<!\w) _{0,2} [a-z0-9]{1,40} (?: _[a-z0-9]{1,40} ){1,10} _{0,2} (?!\w)             # snake_case
    | (?<![\w.]) [a-z_]\w{0,40} (?: \. [a-z_]\w{1,40} ){2,10} (?!\w)                      # dotted.name.here
    | (?<!\w) [a-z_]\w{1,60} \( \s? \)                                                    # call()
    | (?<![\w-]) --[a-z][\w-]{1,40}                                                       # --flag
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
_CAMEL_CASE: Final = re.compile(r"(?<!\w)[A-Z]?[a-z]{2,30}(?:[A-Z][a-z0-9]{1,30}){1,10}(?!\w)", re.ASCII)

_QUESTION: Final = re.compile(r"[?？⸮؟]")
_QUESTION_WORD: Final = (
    r"(?:what|how|why|when|where|who|whose|whom|which|can|could|is|are|was|were|does|do|did|should|will|would)"
)
_SEVERAL: Final = re.compile(
    rf"""
      \b (?: and | or | but | then | also ) \s+ (?: also \s+ | then \s+ )? {_QUESTION_WORD} \b
    | \b (?: as\ well\ as | versus | vs\.? | compared\ (?: to | with ) | both \b .{{1,80}} \b and )
    | \b (?: difference | differences | similarities | comparison | relationship | compare | choose | choice )
        \b .{{1,80}} \b (?: and | or | with ) \b
    | \b (?: and | or ) \b .{{1,80}} \b (?: and | or ) \b
    | ; \s* \w
    | および | 及び | ならびに | 並びに | それとも | または | 又は | もしくは | あるいは | かつ | そして | それから
    | (?: か | の ) 、 .{{1,80}} か (?: [。？?] | $ ) | か 。 .{{1,80}} か 。?
    | と .{{1,40}} (?: の | は | を | で )? (?: 違い | 違う | 比較 | 関係 | どちら | どっち | 共通点 )
    | 그리고 | 또는 | 혹은 | 아니면 | (?<!\w) 및 (?!\w)
    | (?: 와 | 과 | 랑 | 하고 ) \s .{{1,40}} (?: 차이 | 비교 | 관계 | 공통점 | 중에?\s )
    | (?: 고 | 며 ) , \s? .{{1,80}} (?: 까 | 요 | 나 | 가 ) (?: [?.] | $ )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ASKS: Final = re.compile(
    rf"""
      ^ \s* {_QUESTION_WORD} \b | [?？]
    | か [。?]? $ | 何 | 誰 | どこ | いつ | なぜ | どう | とは $
    | (?: 까 | 나요 | 은요 | 는요 | 인가 ) $ | 무엇 | 누구 | 어디 | 언제 | 왜 | 어떻게
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SHORT_TOKENS: Final = {Script.JAPANESE: 4, Script.HAN: 4, Script.HANGUL: 4}
_SHORT_TOKENS_ELSEWHERE: Final = 5


def count_identifiers(query: str) -> int:
    """Count exact identifiers in the first 1000 characters, those that overlap once.

    Identifiers are addresses, mail, quoted strings, UUIDs, hexadecimal and long numbers, paths and file
    names, versions, error codes, codes of letters with digits, snake_case, CamelCase, dotted names, calls
    and flags. Plain words, years and ordinals are none.
    """
    query = query[:MOST_CHARACTERS]
    rest, found = _IDENTIFIERS.subn(" ", query)
    return found + sum(1 for _ in _CAMEL_CASE.finditer(rest))


def classify(query: str, identifiers: int | None = None) -> QueryClass:
    """Return the class of a query: the first that fits of identifier, multi-part, short-ambiguous, other.

    A query is multi-part with more than one question, or a conjunction that joins questions or things to
    compare, in English, Japanese or Korean; short with at most four tokens (Japanese, Chinese, Korean) or
    five (other scripts, about 17 letters) that ask no question. ``identifiers`` saves counting them again.
    """
    query = query[:MOST_CHARACTERS].strip()
    if count_identifiers(query) if identifiers is None else identifiers:
        return QueryClass.IDENTIFIER
    if len(_QUESTION.findall(query)) > 1 or _SEVERAL.search(query):
        return QueryClass.MULTI_PART
    most = _SHORT_TOKENS.get(main_script(query), _SHORT_TOKENS_ELSEWHERE)
    if estimate_tokens(query) <= most and not _ASKS.search(query):
        return QueryClass.SHORT_AMBIGUOUS
    return QueryClass.OTHER
