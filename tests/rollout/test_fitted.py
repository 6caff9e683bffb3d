"""Making a release of a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from cascade.calibration.artefact import PricePoint
from cascade.errors import ConfigError
from cascade.policy.depth import AnyDepth
from cascade.policy.depth_rules import FixedDepth, GainDepth, GreedyDepth, HistoryNumbers
from cascade.policy.escalation_rules import CalibratedEscalation, NoEscalation
from cascade.policy.levels import at_level
from cascade.rollout.fitted import fitted_release, write_release
from cascade.rollout.load import load_release
from cascade.testing.calibration import scripted_artefact
from tests.scenario import release_data

_DIGEST = "sha256:" + "a" * 64
_PRICES = tuple(
    PricePoint(target=target, price=price, recovered=target, large_share=0.4, judged_by="judgements")
    for target, price in ((0.8, 0.0123456), (0.95, 0.00123456))
)
_SHOWN = scripted_artefact(k=3, prices=_PRICES, second_round=True)


def _base(folder: Path, **changes: Any) -> Path:
    data = release_data(**changes)
    for stage in data["stages"].values():
        stage["url"] = "${NOT_SET_ANYWHERE}"
    path = folder / "base.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_a_release_takes_the_escalation_that_was_fitted(tmp_path: Path) -> None:
    """Price of the target, length and rounds are the calibration's, all else the release's; it can be served."""
    base = _base(tmp_path, depth=40, evidence={"report": "sha256:" + "b" * 64}, mode="observe")
    out = tmp_path / "mine.yaml"
    assert (
        write_release(out, fitted_release(base, _SHOWN, _DIGEST, 0.95)) == "escalation calibrated, price 0.00123 a pair"
    )
    release = load_release(out, {"NOT_SET_ANYWHERE": "http://stage.example"}).release
    assert (release.release, release.mode, release.evidence, release.calibration) == (
        "r1-fitted",
        "cascade",
        None,
        _DIGEST,
    )
    assert release.escalation == CalibratedEscalation.model_validate(
        {
            "kind": "calibrated",
            "calibration": _DIGEST,
            "k": 3,
            "price_per_pair": 0.00123,
            "rounds": 2,
            "safe_top_m": 20,
        }
    )
    assert (release.depth.depth, release.budgets.total_ms) == (40, 100)  # type: ignore[union-attr]
    assert "${NOT_SET_ANYWHERE}" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("escalation", "expected"),
    [
        ({"kind": "static", "top_m": 7}, 7),
        ({"kind": "static-fused", "calibration": _DIGEST, "top_m": 7, "safe_top_m": 9}, 9),
        ({"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01, "safe_top_m": 11}, 11),
        ({"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01}, 20),
    ],
)
def test_the_safe_mode_sends_what_the_release_sent_before(
    tmp_path: Path, escalation: dict[str, Any], expected: int
) -> None:
    """Its safe mode's top, else its constant top, else twenty."""
    base = _base(tmp_path, escalation=escalation)
    assert fitted_release(base, _SHOWN, _DIGEST, 0.8)["escalation"]["safe_top_m"] == expected


def test_a_calibration_without_a_second_round_has_one(tmp_path: Path) -> None:
    """The release asks for no round that was not fitted."""
    artefact = scripted_artefact(prices=_PRICES)
    assert fitted_release(_base(tmp_path), artefact, _DIGEST, 0.8)["escalation"]["rounds"] == 1


def test_a_large_stage_that_shows_no_benefit_is_left_out_and_the_release_says_why(tmp_path: Path) -> None:
    """Escalation none with the figures, no large stage, and a release that can be served as it is."""
    out = tmp_path / "mine.yaml"
    told = write_release(out, fitted_release(_base(tmp_path), scripted_artefact(benefit="none-found"), _DIGEST, 0.95))
    reason = "the large stage is not shown to help: ndcg@5 -0.0100, interval -0.0400 to +0.0200, 100 queries"
    assert told == f"escalation none: {reason}"
    release = load_release(out, {"NOT_SET_ANYWHERE": "http://stage.example"}).release
    assert release.escalation == NoEscalation(reason=reason)
    assert release.stages.large is None
    assert release.stages.small is not None


def test_an_interval_that_is_not_known_is_told_as_none(tmp_path: Path) -> None:
    """As of a handful of queries."""
    artefact = scripted_artefact(benefit="none-found")
    artefact = artefact.model_copy(update={"benefit": artefact.benefit.model_copy(update={"low": None, "high": None})})
    written = fitted_release(_base(tmp_path), artefact, _DIGEST, 0.95)
    assert "interval none to none" in written["escalation"]["reason"]


@pytest.mark.parametrize(
    ("missing", "benefit", "told"),
    [
        (("large",), "shown", "it has no large stage"),
        (("small", "large"), "not-shown", "it has no small and no large stage"),
        (("small",), "none-found", "it has no small stage"),
    ],
)
def test_a_release_needs_the_stages_that_the_calibration_is_for(
    tmp_path: Path, missing: tuple[str, ...], benefit: Any, told: str
) -> None:
    """A large stage that shows no benefit need not be there."""
    data = release_data(escalation="none" if "large" in missing else {"kind": "static", "top_m": 3})
    for name in missing:
        del data["stages"][name]
    path = tmp_path / "base.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"--release: {told}, which the calibration is for"):
        fitted_release(path, scripted_artefact(benefit=benefit, prices=_PRICES), _DIGEST, 0.8)


def test_a_target_without_a_price_is_refused(tmp_path: Path) -> None:
    """With the targets that have one."""
    with pytest.raises(ConfigError, match=r"--target: no price recovers 0\.9; there are prices for 0\.8, 0\.95"):
        fitted_release(_base(tmp_path), _SHOWN, _DIGEST, 0.9)
    with pytest.raises(ConfigError, match="there are prices for none"):
        fitted_release(_base(tmp_path), scripted_artefact(), _DIGEST, 0.9)


def test_a_release_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    """Before anything is made of it."""
    path = tmp_path / "base.yaml"
    path.write_text("release: r1\nstages: null\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"release .*base\.yaml: "):
        fitted_release(path, _SHOWN, _DIGEST, 0.8)


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """With the option and the kind of error."""
    written = fitted_release(_base(tmp_path), _SHOWN, _DIGEST, 0.8)
    with pytest.raises(ConfigError, match=r"--release-out .*: cannot be written: FileNotFoundError"):
        write_release(tmp_path / "absent" / "mine.yaml", written)


def test_a_long_name_stays_a_valid_name(tmp_path: Path) -> None:
    """Names have 64 characters at most."""
    written = fitted_release(_base(tmp_path, release="r" * 64), _SHOWN, _DIGEST, 0.8)
    assert written["release"] == "r" * 64


_GREEDY = GreedyDepth.model_validate({"kind": "greedy", "default": 30, "most": 100, "classes": {"identifier": 10}})
_GAIN = GainDepth.model_validate(
    {
        "kind": "gain",
        "default": 30,
        "most": 100,
        "price_per_candidate": 0.0003,
        "signals": [{"signal": "history.difficulty", "mean": 0.4, "sd": 0.1234567}],
        "depths": [
            {"depth": 10, "intercept": 0.0, "weights": [0.0], "missing": [0.0]},
            {"depth": 100, "intercept": 0.01, "weights": [1.5e-05], "missing": [-2e-17]},
        ],
    }
)


@pytest.mark.parametrize("rule", [FixedDepth(depth=30), _GREEDY, _GAIN])
@pytest.mark.parametrize("benefit", ["shown", "none-found"])
def test_a_depth_that_was_fitted_is_written_as_it_is(
    tmp_path: Path, rule: AnyDepth, benefit: Literal["shown", "none-found"]
) -> None:
    """Whether or not anything escalates, and with the history that it was fitted with in place of an older one."""
    history = HistoryNumbers.model_validate({"classes": {"identifier": 0.25, "other": 0.5}})
    base = _base(tmp_path, depth=40, history={"classes": {"other": 0.9}, "tenants": {}})
    artefact = scripted_artefact(benefit=benefit, prices=_PRICES)
    written = fitted_release(base, artefact, _DIGEST, 0.8, depth=rule, history=history)
    write_release(tmp_path / "mine.yaml", written)
    release = load_release(tmp_path / "mine.yaml", {"NOT_SET_ANYWHERE": "http://stage.example"}).release
    assert release.depth == rule
    assert release.history == history
    assert isinstance(written["depth"], int) == isinstance(rule, FixedDepth)


def test_numbers_of_a_depth_stand_on_one_line(tmp_path: Path) -> None:
    """So that a person can still read the release around them; other lists stay as they were."""
    weights = [0.1] * 4
    signals = [{"signal": f"bm25.{name}", "mean": 0.0, "sd": 1.0} for name in ("gap", "nqc", "smv", "entropy")]
    depths = [{"depth": 10, "intercept": 0.0, "weights": weights, "missing": weights}]
    rule = GainDepth.model_validate({**_GAIN.model_dump(mode="json"), "signals": signals, "depths": depths})
    write_release(tmp_path / "mine.yaml", fitted_release(_base(tmp_path), _SHOWN, _DIGEST, 0.8, depth=rule))
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert "    weights: [0.1, 0.1, 0.1, 0.1]\n" in text
    assert "  - signal: bm25.gap\n" in text


def test_without_a_fitted_depth_the_release_keeps_its_own(tmp_path: Path) -> None:
    """And its history."""
    history = {"classes": {"other": 0.9}}
    written = fitted_release(_base(tmp_path, depth=40, history=history), _SHOWN, _DIGEST, 0.8)
    assert (written["depth"], written["history"]) == (40, history)


_LEVELS = [
    {"name": "normal"},
    {"name": "dearer", "escalation": {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.02}},
    {"name": "shallow", "depth": 20, "escalation": "none"},
    {"name": "nothing", "stages": "none"},
]


def test_load_levels_read_the_calibration_that_was_fitted(tmp_path: Path) -> None:
    """A level that reads a calibration reads the new one; the others stay as they are."""
    other = "sha256:" + "b" * 64
    escalation = {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01}
    base, out = _base(tmp_path, levels=_LEVELS, escalation=escalation), tmp_path / "mine.yaml"
    write_release(out, fitted_release(base, _SHOWN, other, 0.8))
    release = load_release(out, {"NOT_SET_ANYWHERE": "http://stage.example"}).release
    assert [level.name for level in release.levels] == ["normal", "dearer", "shallow", "nothing"]
    assert at_level(release, "dearer").calibration == release.calibration == other
    assert at_level(release, "shallow").escalation == NoEscalation()


def test_without_escalation_no_load_level_escalates_either(tmp_path: Path) -> None:
    """One that then does what the release does is left out."""
    escalation = {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01}
    base, out = _base(tmp_path, levels=_LEVELS, escalation=escalation), tmp_path / "mine.yaml"
    write_release(out, fitted_release(base, scripted_artefact(benefit="none-found"), _DIGEST, 0.8))
    release = load_release(out, {"NOT_SET_ANYWHERE": "http://stage.example"}).release
    assert [level.name for level in release.levels] == ["normal", "shallow", "nothing"]
    assert all(at_level(release, level.name).stages.large is None for level in release.levels)
