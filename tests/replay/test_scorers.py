"""Which stages score, and what their columns are called."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cascade.errors import ConfigError
from cascade.replay.scorers import scorer_columns
from cascade.types import StageName

_BOTH = (StageName.LARGE, StageName.SMALL)


@pytest.mark.parametrize(
    ("scorers", "names", "columns"),
    [
        (None, [], {"small": "small", "large": "large"}),
        (["large", " small"], [], {"small": "small", "large": "large"}),
        (["large"], [], {"large": "large"}),
        (None, ["small=bge_small", "large = minilm"], {"bge_small": "small", "minilm": "large"}),
        (None, ["small=large", "large=small"], {"large": "small", "small": "large"}),
    ],
)
def test_columns_are_named_for_their_stage_unless_told(
    scorers: Sequence[str] | None, names: Sequence[str], columns: dict[str, str]
) -> None:
    """Small comes first, whatever the order asked for."""
    assert list(scorer_columns(_BOTH, scorers, names).items()) == list(columns.items())


@pytest.mark.parametrize(
    ("there", "scorers", "names", "message"),
    [
        ((), None, [], "the release has no stage that could score"),
        (_BOTH, ["tiny"], [], "scorers: no stage 'tiny'; there are small, large"),
        ((StageName.SMALL,), ["large"], [], "scorers: no stage 'large'; there are small"),
        (_BOTH, None, ["small"], "name: a stage and its column are wanted, as in small=bge_small"),
        (_BOTH, ["small"], ["large=x"], "name: no stage 'large'; there are small"),
        (_BOTH, None, ["small=large"], "name: two stages cannot share a column"),
        *(
            (_BOTH, None, [f"small={name}"], f"name: a column of scores cannot be called {name!r}")
            for name in (
                "",
                "bm25",
                "dense",
                "source",
                "rel",
                "doc_id",
                "q_x",
                "ms_x",
                "x_rank",
                "x_rank_2",
                "a b",
                "1",
            )
        ),
    ],
)
def test_what_cannot_be_a_column_is_refused(
    there: Sequence[StageName], scorers: Sequence[str] | None, names: Sequence[str], message: str
) -> None:
    """The option and its rule are told."""
    with pytest.raises(ConfigError) as raised:
        scorer_columns(there, scorers, names)
    assert str(raised.value) == message
