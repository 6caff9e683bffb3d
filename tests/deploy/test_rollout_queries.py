"""What the rollout templates find in made series, by Prometheus' own evaluation: good, bad, and too little to tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.deploy.played import Pod, checked, play, promtool
from tests.deploy.templates import DEPLOY, Condition, Looked, argo, flagger

_SHARES = ("late", "slow", "errors", "faults", "fallback", "escalation", "cost")
_HALF_A_DAY = "x720"


def _holds(query: str, condition: Condition) -> str:
    """Return an expression that is 1 where a condition holds of what a query finds, and 0 where it does not."""
    return f"count(({query}) {condition.sign} {condition.bound}) or vector(0)"


def _verdicts(looked: Mapping[str, Looked], verdicts: Mapping[str, str]) -> dict[str, float]:
    """Return what must be found for each metric to have its verdict."""
    expected: dict[str, float] = {}
    for name, verdict in verdicts.items():
        expected[_holds(looked[name].query, looked[name].success)] = verdict == "successful"
        expected[_holds(looked[name].query, looked[name].failure)] = verdict == "failed"
    return {text: float(value) for text, value in expected.items()}


def _passes(passing: Mapping[str, bool]) -> dict[str, float]:
    """Return what must be found for each of Flagger's checks to pass or not; one that finds nothing does not pass."""
    expected = {}
    for name, (query, bounds) in flagger().items():
        within = f"(({query}) <= {bounds['max']}) >= {bounds.get('min', '-Inf')}"
        expected[f"count({within}) or vector(0)"] = float(passing[name])
    return expected


def _fleet(canary: str, stable: str, requests: float, of_stable: float = 2000, **bad: float) -> list[Pod]:
    """Return a canary that decides so many requests a minute, and two stable pods, 1% of whose answers are bad."""
    few = of_stable / 100
    pods = [
        Pod(f"{stable}-{end}").decides(of_stable, digest="sha256:old", late=few, slow=few, degraded=few)
        for end in ("y1", "y2")
    ]
    return [*pods, Pod(f"{canary}-x1").decides(requests, digest="sha256:new", **bad)]


_GOOD: Mapping[str, float] = {"requests": 200, "late": 2, "slow": 2, "degraded": 2}
_BAD: Mapping[str, float] = {
    "requests": 200, "late": 20, "slow": 20, "degraded": 20, "refused": 10, "faults": 10, "escalated": 0.5, "safe_mode": 1,
}  # fmt: skip
_FEW: Mapping[str, float] = {"requests": 20}
_FEW_AND_BAD: Mapping[str, float] = {**_BAD, "requests": 40, "safe_mode": 0}
_FEW_STABLE: Mapping[str, float] = {**_GOOD, "of_stable": 20}
_BETWEEN: Mapping[str, float] = {"requests": 60, "late": 0.6, "slow": 0.6, "degraded": 1.8, "escalated": 0.15}
_NO_CANDIDATES: Mapping[str, float] = {"requests": 200, "candidates": 0}


def _all(verdict: str, **others: str) -> dict[str, str]:
    return dict.fromkeys(_SHARES, verdict) | {"one-release": "successful", "safe-mode": "successful"} | others


@pytest.mark.parametrize(
    ("canary", "verdicts"),
    [
        (_GOOD, _all("successful")),
        (_BAD, _all("failed", **{"safe-mode": "failed"})),
        (_FEW, _all("inconclusive")),
        (_FEW_AND_BAD, _all("inconclusive")),
        (_FEW_STABLE, _all("inconclusive")),
        (_BETWEEN, _all("inconclusive")),
        (_NO_CANDIDATES, _all("successful", escalation="inconclusive", cost="inconclusive")),
    ],
    ids=["good", "bad", "few", "few and bad", "few stable", "between", "no candidates"],
)
def test_argo_compares_pods_by_their_hash(
    canary: Mapping[str, float], verdicts: Mapping[str, str], tmp_path: Path
) -> None:
    """Too few requests and what lies between are inconclusive, for every guardrail."""
    pods = _fleet("cascade-66f", "cascade-55d", **canary)
    play(tmp_path, pods, _verdicts(argo("cascade-arms"), verdicts))


def test_argo_finds_nothing_without_a_canary_or_without_pods_that_are_named(tmp_path: Path) -> None:
    """No series, no stable side, and a namespace that is another's: each is inconclusive."""
    stable = [Pod("cascade-55d-y1").decides(2000, digest="sha256:old")]
    canary = Pod("cascade-66f-x1").decides(2000, digest="sha256:new")
    other = Pod("cascade-66f-x1")
    other.series = [one | {"series": one["series"].replace('"search"', '"other"')} for one in canary.series]
    nothing = _verdicts(argo("cascade-arms"), dict.fromkeys(argo("cascade-arms"), "inconclusive"))
    play(tmp_path, stable, nothing)
    play(tmp_path, [*stable, other], nothing)
    play(tmp_path, [canary], _verdicts(argo("cascade-arms"), _all("inconclusive")))


def test_argo_fails_where_canaries_serve_two_releases(tmp_path: Path) -> None:
    """What was mounted changed under the pods: the comparison says nothing."""
    pods = [*_fleet("cascade-66f", "cascade-55d", 200), Pod("cascade-66f-x2").decides(200, digest="sha256:other")]
    play(tmp_path, pods, _verdicts(argo("cascade-arms"), {"one-release": "failed"}))


def test_a_share_is_smoothed_and_its_variance_falls_with_the_requests(tmp_path: Path) -> None:
    """20 late of 2,000 in ten minutes are (20 + 1) / (2,000 + 2)."""
    share = 21 / 2002
    at = 'replicaset="cascade-66f", guardrail="late"'
    expected = {
        f"abs(sum(cascade:guarded:share10m{{{at}}}) - {share}) < bool 1e-9": 1.0,
        f"abs(sum(cascade:guarded:variance10m{{{at}}}) - {share * (1 - share) / 2002}) < bool 1e-12": 1.0,
        'round(sum(cascade:requests:increase10m{replicaset="cascade-55d"}))': 40_000.0,
        'round(1000 * sum(cascade:guarded:share10m{replicaset="cascade-55d", guardrail="cost"}))': 182.0,
    }
    play(tmp_path, _fleet("cascade-66f", "cascade-55d", **_GOOD), expected)


def test_a_release_that_gives_itself_more_time_is_slow_though_never_late(tmp_path: Path) -> None:
    """Its answers are held against the same seconds as those of the stable release, by both templates."""
    slower = {**_GOOD, "late": 0, "slow": 20}
    argo_says = _verdicts(argo("cascade-arms"), _all("successful", slow="failed"))
    play(tmp_path, _fleet("cascade-66f", "cascade-55d", **slower), argo_says)
    passing = dict.fromkeys(flagger(), True) | {"slow": False}
    play(tmp_path, _fleet("cascade-66f", "cascade-primary-55d", **slower), _passes(passing))


def test_what_no_bucket_has_is_not_told(tmp_path: Path) -> None:
    """Seconds that are no bucket find nothing, which is inconclusive; all others are told of, the last with none above."""
    share = 'max(cascade:guarded:share10m{{replicaset="cascade-66f", guardrail="slow-{}"}})'
    few = 1 / 2002
    expected = {
        f"count({share.format('0.3')}) or vector(0)": 0.0,
        f"abs({share.format('+Inf')} - {few}) < bool 1e-9": 1.0,
    }
    play(tmp_path, _fleet("cascade-66f", "cascade-55d", **_GOOD), expected)


def test_more_faults_than_requests_are_a_share_of_one(tmp_path: Path) -> None:
    """One request may meet several; a share above 1 would have a variance below 0, and tell nothing."""
    pods = _fleet("cascade-66f", "cascade-55d", 200, faults=600)
    play(tmp_path, pods, _verdicts(argo("cascade-arms"), {"faults": "failed"}))


@pytest.mark.parametrize(
    ("canary", "passing"),
    [
        (_GOOD, {}),
        (_BAD, {**dict.fromkeys(_SHARES, False), "safe-mode": False}),
        (_FEW, dict.fromkeys(_SHARES, False)),
        (_FEW_STABLE, dict.fromkeys(_SHARES, False)),
        (_BETWEEN, dict.fromkeys(_SHARES, False)),
        (_NO_CANDIDATES, {"escalation": False, "cost": False}),
    ],
    ids=["good", "bad", "few", "few stable", "between", "no candidates"],
)
def test_flagger_lets_pass_only_what_is_shown(
    canary: Mapping[str, float], passing: Mapping[str, bool], tmp_path: Path
) -> None:
    """It has two outcomes: what is inconclusive fails a check, and so does a NaN, which it would let pass."""
    pods = _fleet("cascade-66f", "cascade-primary-55d", **canary)
    play(tmp_path, pods, _passes({**dict.fromkeys(flagger(), True), **passing}))


def test_nan_is_left_out_for_flagger(tmp_path: Path) -> None:
    """Flagger holds a value against a range, and NaN is beyond no bound: there must be no value."""
    query, _ = flagger()["escalation"]
    pods = _fleet("cascade-66f", "cascade-primary-55d", **_NO_CANDIDATES)
    play(tmp_path, pods, {f"count({query}) or vector(0)": 0.0})


def _replica(name: str, old: str | None, new: str | None, arm: str = "canary", guardrail: str | None = None) -> Pod:
    """Return a pod that splits traffic itself: what it shows of its old release, its new one, and a guardrail."""
    pod = Pod(name)
    info = {"release": "r", "version": "1"}
    if old is not None:
        pod.shows("cascade_release_info", old, digest="sha256:old", arm="stable", **info)
    if new is not None:
        pod.shows("cascade_release_info", new, digest="sha256:new", arm=arm, **info)
    if guardrail is not None:
        pod.shows("cascade_guardrail", guardrail, name="late")
    return pod


@pytest.mark.parametrize(
    ("replicas", "arrived", "guardrails"),
    [
        ([_replica("a", "1x30", "1x30", guardrail="0x30")], "inconclusive", "inconclusive"),
        ([_replica("a", "1x30", "1x30", guardrail="1x30")], "inconclusive", "successful"),
        ([_replica("a", "1x30", "1x30", guardrail="-1x30")], "inconclusive", "failed"),
        ([_replica(name, None, "1x30", "stable") for name in "ab"], "successful", "successful"),
        ([_replica("a", None, "1x30", "stable"), _replica("b", "1x30", None)], "inconclusive", "inconclusive"),
        ([_replica("a", None, "1x30", "stable"), _replica("b", "1x30", "1x20 stale")], "failed", "inconclusive"),
        (
            [_replica("a", None, "1x30", "stable"), _replica("b", "1x20 stale", "1x20 stale")],
            "successful",
            "successful",
        ),
        ([_replica("a", "1x30", None)], "inconclusive", "inconclusive"),
        ([], "inconclusive", "inconclusive"),
    ],
    ids=[
        "tried",
        "all pass",
        "one fails",
        "all have it",
        "one has not",
        "taken back",
        "pod is gone",
        "not yet",
        "none",
    ],
)
def test_h1_watching_tells_when_every_replica_has_the_release(
    replicas: Sequence[Pod], arrived: str, guardrails: str, tmp_path: Path
) -> None:
    """A replica that took the release back is a failure; one that is gone, or not there yet, is not."""
    verdicts = {"arrived": arrived, "guardrails": guardrails}
    play(tmp_path, replicas, _verdicts(argo("cascade-watch"), verdicts))


@pytest.mark.parametrize(
    ("late", "verdict"),
    [
        (_replica("b", f"1{_HALF_A_DAY}", None), "failed"),
        (_replica("b", "1x60 stale", "_x61 1x659", "stable"), "successful"),
        (_replica("b", "1x150 stale", "_x151 1x569", "stable"), "successful"),
        (_replica("b", "1x200 stale", None), "failed"),
    ],
    ids=["behind", "in time", "within the window", "until just now"],
)
def test_h1_more_than_one_revision_beyond_the_window_fails(late: Pod, verdict: str, tmp_path: Path) -> None:
    """Two hours in which two stable releases served all the time are too many."""
    pods = [_replica("a", None, f"1{_HALF_A_DAY}", "stable"), late]
    play(tmp_path, pods, _verdicts(argo("cascade-one-revision"), {"revisions": verdict}), at="200m")


def test_h1_no_replica_tells_nothing_of_revisions(tmp_path: Path) -> None:
    """Where there is nothing, nothing is shown."""
    play(tmp_path, [], _verdicts(argo("cascade-one-revision"), {"revisions": "inconclusive"}))


def test_rules_and_alerts_are_what_prometheus_takes_and_fire_when_they_should() -> None:
    """Prometheus' own tool checks them, and plays the scenarios beside the alerts."""
    folder = DEPLOY / "prometheus"
    tool = promtool()
    checked(tool, "check", "rules", str(folder / "rollout-rules.yaml"), str(folder / "rollout-alerts.yaml"))
    checked(tool, "test", "rules", str(folder / "rollout-alerts_test.yaml"))
