"""Each fault of a candidate stage is found, by the limit that is there for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cascade.errors import StageInvalidAnswer
from cascade.parity.assemble import Question
from cascade.parity.batches import Situation
from cascade.parity.contrast_texts import CASES, WINDOW_ANSWER
from cascade.parity.gather import Gathered
from cascade.parity.report import BUILT_IN, parity_report
from cascade.parity.spaces import Spaces, sigmoid
from cascade.parity.tolerances import Tolerances, checks
from cascade.testing.stages import ScriptedStage
from cascade.types import ScoreSpace
from tests.parity.arrange import BentStage, candidate_list, compared, failed, hashed, lists_of, named


def _probability(query: str, text: str) -> float:
    return float(sigmoid(np.array([hashed(query, text)]))[0])


def test_a_stage_against_itself_keeps_every_limit() -> None:
    """With no error, whole overlap, and contrasts that neither side loses to the other."""
    found = compared(ScriptedStage(hashed), ScriptedStage(hashed), lists_of(12))
    assert failed(found) == set()
    assert found.compared.whole.max_error == 0.0
    assert found.coverage.pairs == 12 * 12
    assert named(found, "overlap").value == 1.0
    assert named(found, "ndcg_loss").value == 0.0
    assert named(found, "contrast_lost").value == 0.0
    assert named(found, "token_mismatch").passed is None


def test_a_double_sigmoid_is_told_though_every_order_is_right() -> None:
    """Ranking metrics are perfect; the score space is not, and the report says what it looks like."""
    spaces = Spaces(ScoreSpace.PROBABILITY, ScoreSpace.PROBABILITY)
    ref = ScriptedStage(_probability, space=ScoreSpace.PROBABILITY)
    cand = BentStage(
        _probability,
        space=ScoreSpace.PROBABILITY,
        bend=lambda query, texts, scores: sigmoid(np.array(scores)).tolist(),
    )
    found = compared(ref, cand, lists_of(12), spaces)
    assert {"score_space", "max_error"} <= failed(found)
    assert failed(found).isdisjoint({"kendall", "overlap", "large_flips", "ndcg_loss", "pearson"})
    report = parity_report(found, checks(found, Tolerances()), Question(), BUILT_IN)
    assert report["passed"] is False
    assert "CAND looks like sigmoid(sigmoid(logit))" in " ".join(report["notes"])


def test_logits_against_their_own_probabilities_keep_every_limit() -> None:
    """Declared as what they are, the same model in two spaces is no fault: correlation is taken in the common one."""
    spaces = Spaces(ScoreSpace.LOGIT, ScoreSpace.PROBABILITY)
    found = compared(
        ScriptedStage(hashed), ScriptedStage(_probability, space=ScoreSpace.PROBABILITY), lists_of(12), spaces
    )
    assert failed(found) == set()
    assert found.compared.whole.pearson == pytest.approx(1.0)


def test_the_loss_of_ndcg_is_the_one_that_the_interval_leaves_open() -> None:
    """Half of the queries are answered the wrong way round: the limit is held against the interval's end, not the mean."""
    cand = BentStage(
        hashed,
        bend=lambda query, texts, scores: [-score for score in scores] if ord(query[-1]) % 2 else scores,
    )
    found = compared(ScriptedStage(hashed), cand, lists_of(12))
    assert found.compared.quality is not None
    delta = found.compared.quality.ndcg_delta
    assert delta.value is not None
    assert delta.interval is not None
    assert delta.interval[0] is not None
    loss = named(found, "ndcg_loss").value
    assert loss == -delta.interval[0]
    assert loss > -delta.value


def test_answers_in_order_of_score_are_misaligned() -> None:
    """The right numbers at the wrong documents: what ignoring the index of a sorted answer makes."""

    def sorted_answers(query: str, texts: Sequence[str], scores: list[float]) -> list[float]:
        return sorted(scores, reverse=True)

    found = compared(ScriptedStage(hashed), BentStage(hashed, bend=sorted_answers), lists_of(12))
    assert {"misaligned", "max_error", "kendall", "large_flips", "jitter"} <= failed(found)
    assert found.compared.misaligned == 1.0


def test_another_truncation_shows_at_over_length_pairs_alone() -> None:
    """CAND reads the first 120 characters; only the slice of over-length pairs differs."""
    cand = ScriptedStage(lambda query, text: hashed(query, text[:120]))
    ref = ScriptedStage(lambda query, text: hashed(query, text[:400]))
    found = compared(ref, cand)
    errors = {part.name: part.agreement.max_error for part in found.compared.slices if part.attribute == "length"}
    assert errors["length: short"] == 0.0
    assert errors["length: medium"] == 0.0
    over = errors["length: over-length"]
    assert over is not None
    assert over > 0.1
    assert "max_error" in failed(found)


def test_scores_that_move_with_their_mates_are_jitter() -> None:
    """A dynamically quantised model: the longest text of a call sets the scale, and equal calls are equal."""

    def quantised(query: str, texts: Sequence[str], scores: list[float]) -> list[float]:
        step = 0.05 * max(map(len, texts)) ** 0.5
        return [round(score / step) * step for score in scores]

    found = compared(ScriptedStage(hashed), BentStage(hashed, bend=quantised), lists_of(12))
    assert "jitter" in failed(found)
    jitter = found.cand.jitter
    assert jitter is not None
    assert jitter.is_deterministic
    assert jitter.moved[Situation.REPEATS].greatest == 0.0
    assert jitter.moved[Situation.LONG_MATES].greatest > 0.3
    assert jitter.moved[Situation.MIXED].greatest > 0.3
    assert jitter.moved[Situation.POSITION].greatest == 0.0
    assert found.ref.jitter is not None
    assert found.ref.jitter.greatest == 0.0
    assert found.cand.runs == 1


def test_scores_that_move_with_their_place_are_jitter() -> None:
    """The last document of a call gets half a point more."""

    def last(query: str, texts: Sequence[str], scores: list[float]) -> list[float]:
        return [*scores[:-1], scores[-1] + 0.5] if len(scores) > 1 else scores

    found = compared(ScriptedStage(hashed), BentStage(hashed, bend=last))
    assert found.cand.jitter is not None
    assert found.cand.jitter.moved[Situation.POSITION].greatest == pytest.approx(0.5)
    assert "jitter" in failed(found)


def test_noise_is_run_three_times_and_is_no_error_where_it_is_allowed() -> None:
    """Equal calls differ by noise of sd 0.05: means over three runs keep the limits once jitter is allowed."""
    random = np.random.default_rng(5)
    noisy = BentStage(
        hashed, bend=lambda query, texts, scores: (np.array(scores) + random.normal(0, 0.05, len(scores))).tolist()
    )
    found = compared(ScriptedStage(hashed), noisy, lists_of(20))
    assert (found.ref.runs, found.cand.runs) == (1, 3)
    assert found.compared.paired.noise_cand == pytest.approx(0.05, rel=0.15)
    assert found.compared.whole.max_excess == 0.0
    assert failed(found, max_jitter=0.01, max_error=0.02) == {"jitter"}
    assert failed(found, max_jitter=0.5, max_error=0.02) == set()


def test_one_broken_slice_is_told_by_name() -> None:
    """CAND reads no digits: pairs with digits are wrong, the others are right."""
    plain = lists_of(12)
    sized = [
        candidate_list(f"sized-{word}", [f"a bolt of {word} {place} mm" for place in range(12)], query=f"bolts {word}")
        for word in ("iron", "steel", "brass", "copper", "zinc", "tin")
    ]
    cand = ScriptedStage(lambda query, text: hashed(query, "".join(sign for sign in text if not sign.isdigit())))
    found = compared(ScriptedStage(hashed), cand, Gathered((*plain.lists, *sized), of_queries=18))
    broken = {name for name in failed(found) if name.endswith("]")}
    assert {"mean_error [digits: yes]", "kendall [digits: yes]"} <= broken
    assert not any("digits: no" in name for name in broken)


def test_documents_that_only_one_side_scores_are_missing() -> None:
    """CAND refuses some: they are counted with the first of them, and the limit is none."""
    cand = ScriptedStage(hashed, refuses=lambda text: text.endswith("aa"))
    found = compared(ScriptedStage(hashed), cand, lists_of(12))
    assert failed(found) == {"missing_at_cand"}
    assert (found.coverage.only_ref.pairs, found.coverage.only_ref.first) == (1, ("q0", "d0"))
    assert failed(found, max_missing=0.01) == set()


def test_a_query_that_fails_is_left_out_told_and_counted() -> None:
    """After three tries; its pairs are REF's alone."""
    cand = BentStage(hashed, lost=lambda query: StageInvalidAnswer if query == "query da" else None)
    found = compared(ScriptedStage(hashed), cand, lists_of(12))
    assert found.cand.failed == {"q3": "stage_invalid_answer (scripted)"}
    assert failed(found) == {"missing_at_cand"}
    assert (found.coverage.queries, found.coverage.only_ref.pairs) == (11, 12)


def test_a_contrast_that_only_the_candidate_loses_is_told() -> None:
    """REF has all contrasts right, CAND turns those with a negation round."""
    found = compared(ScriptedStage(_contrasting(())), ScriptedStage(_contrasting(("nuts", "dogs"))))
    assert found.contrast_lost == 2
    assert "contrast_lost" in failed(found)
    assert {item.kind for item in found.contrasts or () if item.lost} == {"negation"}
    assert failed(found, max_contrast_lost=2).isdisjoint({"contrast_lost"})


def _contrasting(lost: Sequence[str]) -> Callable[[str, str], float]:
    """Return a scorer that knows the built-in answers, and is wrong about queries with one of these words."""
    good = {case.good for case in CASES}

    def score(query: str, text: str) -> float:
        answers = text in good or text.startswith(WINDOW_ANSWER)
        wrong = any(word in query for word in lost)
        return (-1.0 if wrong else 1.0) * (3.0 if answers else -3.0) + hashed(query, text) / 100

    return score
