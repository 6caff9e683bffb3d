"""Certifying from tables to a certificate or a refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascade.calibration.calibrated import Calibration
from cascade.calibration.certificate import Attempts, certificate_bytes, parse_certificate
from cascade.errors import ConfigError
from cascade.fit.certify.asked import Asked
from cascade.fit.certify.attempts import delta_of
from cascade.fit.certify.holes import filled
from cascade.fit.certify.levels import Budget
from cascade.fit.certify.policies import Policies
from cascade.fit.certify.refusal import refused
from cascade.fit.certify.replays import Family
from cascade.fit.certify.run import Outcome, Supplied, certify
from cascade.fit.certify.served import Mix
from cascade.fit.certify.splits import Shares
from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import CalibratedEscalation, FusedEscalation, NoEscalation, StaticEscalation
from cascade.policy.release import Limits
from cascade.replay.policy import Policy, play
from cascade.replay.queries import replayed
from cascade.replay.sweep import Metric
from cascade.replay.table import ScoreTable
from tests.fit.planted import ROLES, planted_table
from tests.replay.made_calibration import made_calibration

_VERSIONS = {"cascade": "0"}
_ALMOST = {"bm25": 2.0, "dense": 0.8, "small": 0.4, "large": 0.35}
"""By how much scorers err where the small one is almost as good as the large one."""


@pytest.fixture(scope="module")
def table() -> ScoreTable:
    """Give 400 queries of 10 candidates, whose small scorer is almost as good as the large one."""
    return planted_table(400, 10, seed=4, errors=_ALMOST)


def _asked(**fields: Any) -> Asked:
    settings: dict[str, Any] = {"roles": ROLES, "epsilon": 0.05, "k": 5, "families": (Family.STATIC,)}
    return Asked(**settings | fields)


def _certify(folder: Path, table: ScoreTable, asked: Asked | None = None, **given: Any) -> Outcome:
    return certify([table], asked or _asked(), Supplied(folder / "attempts.jsonl", _VERSIONS, **given))


def _policy(rule: Any, calibration: Calibration | None = None, depth: int = 10) -> Policy:
    return Policy(rule, FixedDepth(depth=depth), Limits(max_candidates=200), calibration, None, {"release": "r1"})


def test_a_certificate_tells_what_was_promised_and_shown(tmp_path: Path, table: ScoreTable) -> None:
    """Every number is of the queries that certified alone, and follows from the rule that it names."""
    done = _certify(tmp_path, table)
    assert done.refusal is None
    assert done.certificate is not None
    told = done.certificate
    assert told.splits.certify.queries == told.n
    assert told.n + told.splits.choose.queries == 400
    assert told.n == pytest.approx(280, abs=45)
    assert told.bound <= 0.05
    assert told.p <= told.attempts.delta == delta_of(0.1, 1)
    assert told.large_share < 0.6
    assert told.policy.escalation == {"kind": "static", "top_m": int(told.policy.setting)}
    assert told.policy.depth == {"kind": "fixed", "depth": 10}
    assert (told.policy.policy_digest, told.policy.calibration) == (None, None)
    assert [point.accepted for point in told.path] == [True] * (len(told.path) - 1) + [told.path[-1].accepted]
    assert [point.large_share for point in told.path] == sorted((p.large_share for p in told.path), reverse=True)
    assert told.judged is not None
    assert (told.judged.large, told.judged.policy) == (1.0, 1.0)
    assert told.judged.bound_unjudged_nothing == told.judged.bound_unjudged_most == told.bound
    assert parse_certificate(certificate_bytes(told), "it") == told


def test_its_mean_is_that_of_replaying_its_rule(tmp_path: Path, table: ScoreTable) -> None:
    """On the certifying queries, by the code that replays releases."""
    told = _certify(tmp_path, table).certificate
    assert told is not None
    queries = replayed([table], ROLES, 5, Gain.LINEAR).queries
    losses = []
    for rule in (told.policy.escalation, {"kind": "static", "top_m": 10}):
        policy = _policy(StaticEscalation.model_validate(rule))
        losses.append(play(queries, policy, 5, Metric.NDCG).sweep.quality[0])
    lost = losses[1] - losses[0]
    by_part = [_in_part(told.splits.seed, query.id) for query in queries]
    assert told.mean == pytest.approx(float(lost[np.array(by_part)].mean()))


def _in_part(seed: int, name: str) -> bool:
    from cascade.fit.certify.splits import _side

    return _side(name, Shares(0.0, 0.3, 0.7), seed) == 2


def test_the_same_again_is_the_same_certificate(tmp_path: Path, table: ScoreTable) -> None:
    """To the last byte, and no further attempt; another seed is one, and spends a quarter of the first."""
    first, again = (_certify(tmp_path, table).certificate for _ in range(2))
    assert first is not None
    assert again is not None
    assert certificate_bytes(first) == certificate_bytes(again)
    other = _certify(tmp_path, table, _asked(seed=1)).certificate
    assert other is not None
    assert (other.attempts.number, other.attempts.delta) == (2, delta_of(0.1, 2))
    assert other.splits.certify.sha256 != first.splits.certify.sha256


def test_another_epsilon_is_another_attempt_and_another_contract_is_not(tmp_path: Path, table: ScoreTable) -> None:
    """Trying epsilon until one passes spends delta too."""
    numbers = []
    for asked in (
        _asked(),
        _asked(epsilon=0.06),
        _asked(sided="one", epsilon=0.06),
        _asked(kind="silver", epsilon=0.3),
    ):
        told = _certify(tmp_path, table, asked).certificate
        assert told is not None
        numbers.append(told.attempts.number)
    assert numbers == [1, 2, 1, 1]


def test_e8_what_cannot_be_shown_is_refused_with_how_many_it_would_take(tmp_path: Path, table: ScoreTable) -> None:
    """Too few queries for the least epsilon, whatever they lose."""
    done = _certify(tmp_path, table, _asked(epsilon=0.002, sided="one"))
    assert done.certificate is None
    assert done.refusal is not None
    assert done.refusal.least is not None
    assert done.refusal.least == pytest.approx(1400, rel=0.02)
    assert done.refusal.needed is not None
    assert done.refusal.needed > done.refusal.least > done.refusal.queries
    assert "queries certify, and the easiest policy has p" in done.refusal.says[0]
    assert done.refusal.says[1] == f"at least {done.refusal.least} must certify even where none of them loses anything"
    assert done.refusal.says[2].startswith(f"about {done.refusal.needed} would do at its mean loss 0.00")
    assert [point.accepted for point in done.path] == [False]


def test_a_policy_that_loses_more_is_refused_whatever_the_number(tmp_path: Path, table: ScoreTable) -> None:
    """Its mean is not below epsilon: no number of queries would do."""
    release = _policy(StaticEscalation(kind="static", top_m=0))
    worse = replace(table, scores={**table.scores, "small": -table.scores["small"]})
    done = _certify(tmp_path, worse, _asked(families=(Family.RELEASE,)), release=release, alone=True)
    assert done.refusal is not None
    assert done.refusal.needed is None
    assert done.refusal.says[-1].endswith("no number of queries would do")


def test_losing_on_one_side_only_is_stricter(tmp_path: Path, table: ScoreTable) -> None:
    """What the policy gains elsewhere does not offset its harm."""
    two, one = (_certify(tmp_path, table, _asked(sided=sided)).certificate for sided in ("two", "one"))
    assert two is not None
    assert one is not None
    assert one.large_share > two.large_share
    assert one.contract.sided == "one"


def test_without_labels_the_large_order_judges(tmp_path: Path, table: ScoreTable) -> None:
    """Judgements make no difference to it, and are not told of."""
    asked = _asked(kind="silver", epsilon=0.3)
    judged = _certify(tmp_path, table, asked).certificate
    bare = _certify(tmp_path / "..", replace(table, rel=None), asked).certificate
    assert judged is not None
    assert bare is not None
    assert (judged.mean, judged.judged, judged.contract.gain) == (bare.mean, None, "1/rank of the large order")
    assert judged.mean >= 0.0
    with pytest.raises(ConfigError, match="no judgements; --contract silver"):
        _certify(tmp_path, replace(table, rel=None))


def test_what_trained_the_calibration_does_not_certify(tmp_path: Path, calibration: Calibration) -> None:
    """It is left out and counted; every family can be on the path."""
    both = [planted_table(), planted_table(260, 12, seed=9, errors=_ALMOST)]
    asked = _asked(families=(Family.STATIC, Family.FUSED, Family.CALIBRATED), epsilon=0.08)
    done = certify(both, asked, Supplied(tmp_path / "a.jsonl", _VERSIONS, calibration=calibration))
    assert done.fitted is None
    told = done.certificate
    assert told is not None
    assert told.notes == ()
    assert told.splits.trained_left_out == 110
    assert told.splits.fit.queries + told.splits.choose.queries + told.n == 260
    families = {point.family for point in told.path}
    assert families & {"static-fused", "calibrated"}


def test_a_calibration_is_fitted_where_none_is_given(tmp_path: Path) -> None:
    """On its own share; the same queries choose the path by models that have not seen them."""
    table = planted_table(270, 8, seed=6, errors=_ALMOST)
    done = _certify(tmp_path, table, _asked(families=(Family.FUSED,), shares=Shares(0.45, 0.1, 0.45), epsilon=0.12))
    assert done.fitted is not None
    told = done.certificate
    assert told is not None
    assert done.fitted.trained_on.queries == told.splits.fit.queries
    assert told.policy.calibration is not None
    assert told.policy.escalation["calibration"] == told.policy.calibration


def test_a_release_is_certified_as_it_is_or_at_a_threshold(tmp_path: Path, table: ScoreTable) -> None:
    """As it is: one test, of its own rule and depth. On a path: another size of the same rule."""
    rule = StaticEscalation(kind="static", top_m=6)
    given: dict[str, Any] = {
        "release": _policy(rule),
        "digest_of": lambda escalation: f"sha256:{escalation['top_m']:064}",
    }
    asked = _asked(families=(Family.RELEASE,))
    alone = _certify(tmp_path, table, asked, alone=True, **given).certificate
    assert alone is not None
    assert (alone.policy.setting, len(alone.path)) == (6.0, 1)
    assert alone.policy.policy_digest == f"sha256:{6:064}"
    path = _certify(tmp_path, table, asked, **given).certificate
    assert path is not None
    assert path.policy.setting != 6.0
    assert path.attempts.number == 2


@pytest.mark.parametrize("kind", ["calibrated", "static-fused", "none"])
def test_every_kind_of_release_has_a_path(tmp_path: Path, kind: str) -> None:
    """Prices, sizes, or the one thing that it does."""
    fitted = made_calibration()
    table = planted_table(160, 8, seed=6, errors=_ALMOST)
    named = {"kind": kind, "calibration": f"sha256:{'0' * 64}"}
    rule: Any = NoEscalation()
    if kind == "calibrated":
        rule = CalibratedEscalation.model_validate({**named, "k": 5, "price_per_pair": 0.01, "rounds": 1})
    if kind == "static-fused":
        rule = FusedEscalation.model_validate({**named, "k": 5, "top_m": 3})
    release = _policy(rule, None if kind == "none" else fitted, 8)
    told = _certify(tmp_path, table, _asked(families=(Family.RELEASE,), epsilon=0.15), release=release).certificate
    assert told is not None
    assert told.policy.family == "release"
    assert told.policy.escalation["kind"] == kind
    assert (told.large_share == 0.0) == (kind == "none")


def test_levels_and_fallbacks_enter_the_bound(tmp_path: Path, table: ScoreTable) -> None:
    """What they may lose is taken from epsilon, and their bounds from delta."""
    mix = Mix("normal", {"normal": 0.9, "small": 0.05, "degraded-1": 0.05}, fallbacks=(0, 2000))
    levels = {"degraded-1": _policy(StaticEscalation(kind="static", top_m=6))}
    told = _certify(tmp_path, table, _asked(mix=mix), levels=levels).certificate
    assert told is not None
    served = told.as_served
    assert served is not None
    assert served.fallbacks is not None
    assert served.fallbacks.rate == pytest.approx(1.0 - (0.2 * delta_of(0.1, 1) / 4.0) ** (1.0 / 2000))
    assert served.levels["normal"].bound == told.bound <= served.normal_epsilon
    assert told.p <= 0.8 * told.attempts.delta
    assert served.bound <= 0.05
    parts = sum(level.share * level.bound for level in served.levels.values())
    rate = served.fallbacks.rate
    assert served.bound == pytest.approx((1.0 - rate) * parts + rate * served.fallbacks.bound)
    assert served.fallbacks.bound > served.levels["small"].bound > 0.0


def test_fallbacks_that_lose_too_much_leave_nothing_to_certify(tmp_path: Path, table: ScoreTable) -> None:
    """First-stage order for a third of the requests; a mix that nobody knows is refused."""
    mix = Mix("normal", {"normal": 1.0}, fallback_rate=0.33)
    done = _certify(tmp_path, table, _asked(mix=mix))
    assert done.refusal is not None
    assert "levels and fallbacks alone may lose more" in done.refusal.says[0]
    assert done.path == ()
    with pytest.raises(ConfigError, match="--levels-served: no level degraded-9; there are normal, small, first-stage"):
        _certify(tmp_path, table, _asked(mix=Mix("normal", {"normal": 0.5, "degraded-9": 0.5})))
    assert len((tmp_path / "attempts.jsonl").read_bytes().splitlines()) == 1, "what is refused is no attempt"


def test_unjudged_documents_widen_the_bound(tmp_path: Path, table: ScoreTable) -> None:
    """Worth nothing as always, and the most there is: both are told, and how much of the heads is judged."""
    assert table.rel is not None
    unjudged = np.random.default_rng(0).random(table.rel.size) < 0.3
    holed = replace(table, rel=np.where(unjudged, -1, table.rel))
    told = _certify(tmp_path, holed).certificate
    assert told is not None
    assert told.judged is not None
    assert 0.6 < told.judged.large < 0.8
    assert told.judged.bound_unjudged_nothing == told.bound != told.judged.bound_unjudged_most


def test_filling_raises_the_ideal_too() -> None:
    """Grades of all judged documents gain those that nobody judged."""
    table = planted_table(1, 3, rel=np.array([2, -1, 0]), grades=((2, 1),))
    done = filled(table)
    assert done.rel is not None
    assert (done.rel.tolist(), done.grades) == ([2, 2, 0], ((2, 2, 1),))
    assert filled(replace(table, grades=None)).grades is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shares": Shares(0.0, 0.9999, 0.0001)}, "0 queries are left to certify and"),
        ({"families": (Family.FUSED,), "shares": Shares(0.0, 0.5, 0.5)}, "no query is left to fit on"),
        ({"families": (Family.RELEASE,)}, "family release: no release is named"),
    ],
)
def test_what_cannot_be_tried_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """Before an attempt is counted."""
    with pytest.raises(ConfigError, match=told):
        _certify(tmp_path, planted_table(30, 12), _asked(**changes))
    assert not (tmp_path / "attempts.jsonl").exists()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"roles": replace(ROLES, first_stage=("bm25",))}, "reads channels that the first stage does not name: dense"),
        ({"roles": replace(ROLES, large="dense", first_stage=("bm25",))}, "reads channels"),
        ({"roles": replace(ROLES, small="other")}, "fitted for small small, and other is to be certified"),
    ],
)
def test_a_calibration_of_others_is_refused(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    """Channels that it reads, and the scorers that it is of."""
    table = planted_table(60, 12)
    table = replace(table, scores={**table.scores, "other": table.scores["small"]})
    with pytest.raises(ConfigError, match=told):
        _certify(tmp_path, table, _asked(**fields), calibration=made_calibration())


def test_a_calibration_of_another_model_under_the_same_name_is_refused(tmp_path: Path) -> None:
    """By the fingerprint in the table."""
    fitted = made_calibration()
    artefact = fitted.artefact
    known = artefact.model_copy(update={"large": artefact.large.model_copy(update={"fingerprint": {"model": "a"}})})
    table = planted_table(60, 12, conditions={"scorers": {"large": {"fingerprint": {"model": "b"}}}})
    with pytest.raises(ConfigError, match="column large: scored by another large stage"):
        _certify(tmp_path, table, calibration=Calibration(known, fitted.sha256))


def test_a_calibration_of_other_weights_is_refused(tmp_path: Path) -> None:
    """Files that were exchanged under the same fingerprint are another scorer."""
    fitted = made_calibration()
    artefact = fitted.artefact
    known = artefact.model_copy(update={"large": artefact.large.model_copy(update={"weights_sha256": "1" * 64})})
    table = planted_table(60, 12, conditions={"observed": {"large": {"weights_sha256": "2" * 64}}})
    with pytest.raises(ConfigError, match="column large: scored by other weights"):
        _certify(tmp_path, table, calibration=Calibration(known, fitted.sha256))


def test_that_escalating_was_not_shown_to_help_is_noted(tmp_path: Path) -> None:
    """What is certified is then closeness to the large stage, for better or worse."""
    table = planted_table(160, 8, seed=6, errors=_ALMOST)
    asked = _asked(families=(Family.FUSED,), epsilon=0.15)
    told = _certify(tmp_path, table, asked, calibration=made_calibration()).certificate
    assert told is not None
    assert told.notes == ("that the large stage helps is not-shown, as the calibration found",)


def test_families_that_read_a_calibration_need_one() -> None:
    """A path of them cannot be replayed without."""
    with pytest.raises(ConfigError, match="family static-fused reads a calibration, and there is none"):
        Policies((Family.FUSED,), 5, 10).replay(())


def test_nothing_cheaper_than_the_large_stage_is_nothing_to_certify() -> None:
    """There is no policy to test."""
    asked = _asked()
    tried = Attempts(number=1, delta=0.06, identity="0" * 64)
    told = refused(asked, Budget(asked, 0.05, 0.06), tried, np.zeros((1, 5)), [], 7, ())
    assert (told.queries, told.least, told.needed) == (7, None, None)
    assert told.says == ("no policy is cheaper than always-large and expected to lose less than epsilon",)
