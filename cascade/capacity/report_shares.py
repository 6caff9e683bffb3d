"""Read from a report of ``cascade eval`` what share of pairs each level sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cascade.capacity.checked import checked
from cascade.capacity.demand import Basis, Evidence
from cascade.capacity.traffic import Traffic
from cascade.errors import ConfigError
from cascade.policy.release import Release

__all__ = ["ReportShares", "report_shares"]

_Share = Annotated[float, Field(ge=0, le=1)]
_Pairs = Annotated[float, Field(ge=0)]
_OTHER_LISTS = 1.2
"""Lists this many times longer or shorter than the workload's are told of."""


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)


class _PolicyLine(_Read):
    name: str
    large_share: _Share | None
    large_pairs: _Pairs | None


class _LevelLine(_Read):
    name: str
    large_share: _Share | None
    small_pairs: _Pairs | None = None


class _Described(_Read):
    policy_digest: str | None = None


class _Conditions(_Read):
    depth: int | None
    policy: _Described | None = None


class _Report(_Read):
    report: Literal["cascade eval"]
    version: int
    conditions: _Conditions
    policies: Annotated[tuple[_PolicyLine, ...], Field(strict=False)]
    levels: Annotated[tuple[_LevelLine, ...], Field(strict=False)] | None = None


@dataclass(frozen=True, slots=True)
class ReportShares:
    """What a report tells. ``list_pairs`` is the mean number of candidates of its queries, within ``depth``.

    ``large`` and ``small`` map a level to its share of these pairs.
    """

    name: str
    list_pairs: float
    depth: int | None
    large: Mapping[str, float]
    small: Mapping[str, float]

    def evidence(self, level: str, release: Release, traffic: Traffic) -> Evidence | None:
        """Return the pairs of a query at a level: the report's shares of the workload's candidates."""
        if level not in self.large and level not in self.small:
            return None
        pairs = self._pairs(release, traffic)
        small, large = self.small.get(level), self.large.get(level)
        return Evidence(
            Basis.REPORT,
            f"share in {self.name}, of {pairs:.1f} candidates a query",
            None if small is None else small * pairs,
            None if large is None else large * pairs,
        )

    def note(self, release: Release, traffic: Traffic) -> str | None:
        """Tell where the report's lists are much longer or shorter than the workload's."""
        pairs = self._pairs(release, traffic)
        if max(pairs, self.list_pairs) <= _OTHER_LISTS * min(pairs, self.list_pairs):
            return None
        return (
            f"{self.name} was measured on {self.list_pairs:.1f} candidates a query and the workload has {pairs:.1f}: "
            "its shares may not hold there"
        )

    def _pairs(self, release: Release, traffic: Traffic) -> float:
        most = release.limits.max_candidates if self.depth is None else min(self.depth, release.limits.max_candidates)
        return traffic.candidates.mean_of(lambda count: min(count, most))


def report_shares(data: Mapping[str, Any], name: str, policy_digest: str, first_level: str) -> ReportShares:
    """Return what a report tells of the release with this digest.

    Raises ConfigError for what is no report, has no policy, or is of another release.
    """
    what = f"report {name}"
    report = checked(_Report, data, what)
    policies = {each.name: each for each in report.policies}
    policy, always_large = policies.get("policy"), policies.get("large")
    if policy is None or always_large is None or not always_large.large_pairs:
        raise ConfigError(f"{what}: it has no policy; evaluate the release with cascade eval --release")
    described = report.conditions.policy
    if described is None or described.policy_digest is None:
        raise ConfigError(f"{what}: its policy is no release's; evaluate the release with cascade eval --release")
    if described.policy_digest != policy_digest:
        raise ConfigError(
            f"{what}: it is of the policy {described.policy_digest}, and the release's is {policy_digest}"
        )
    large = {} if policy.large_share is None else {first_level: policy.large_share}
    large |= {each.name: each.large_share for each in report.levels or () if each.large_share is not None}
    small = {
        each.name: min(1.0, each.small_pairs / always_large.large_pairs)
        for each in report.levels or ()
        if each.small_pairs is not None
    }
    return ReportShares(name, always_large.large_pairs, report.conditions.depth, large, small)
