"""What a release says of its evidence and of probes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.policy.release import Evidence, parse_release, policy_digest, release_digest
from tests.scenario import release_data

_DIGEST = f"sha256:{'0' * 64}"


def test_evidence_is_optional_in_whole_and_in_part() -> None:
    """A release may name a certificate, a report, both or neither."""
    assert parse_release(release_data()).evidence is None
    release = parse_release(release_data(evidence={"report": _DIGEST}))
    assert release.evidence == Evidence(certificate=None, report=_DIGEST)


@pytest.mark.parametrize("digest", ["0" * 64, "sha256:abc", f"sha256:{'0' * 63}G", 5, f"{_DIGEST}\n"])
def test_evidence_is_named_by_digest(digest: Any) -> None:
    """Anything else is refused under its key."""
    with pytest.raises(ConfigError, match=r"^evidence\.report: "):
        parse_release(release_data(evidence={"report": digest}))


def test_evidence_is_no_part_of_the_policy() -> None:
    """What is known of a policy does not change what it does."""
    one, other = release_data(), release_data(evidence={"certificate": _DIGEST})
    assert policy_digest(one) == policy_digest(other)
    assert release_digest(one) != release_digest(other)


@pytest.mark.parametrize(("written", "rule"), [("off", "off"), ("warn", "warn"), ("enforce", "enforce")])
def test_probes_are_off_warn_or_enforced(written: str, rule: str) -> None:
    """Each is read as YAML writes it, a bare off too; warn is the default."""
    assert parse_release(release_data(probe=yaml.safe_load(written))).probe == rule
    assert parse_release(release_data()).probe == "warn"


@pytest.mark.parametrize("written", [True, "on", 1, None])
def test_probes_are_nothing_else(written: Any) -> None:
    """A misspelt rule is refused."""
    with pytest.raises(ConfigError, match=r"^probe: "):
        parse_release(release_data(probe=written))


@pytest.mark.parametrize("others", [{}, {"max_candidates": 50}], ids=["alone", "beside another"])
def test_tenants_are_no_part_of_the_policy(others: dict[str, Any]) -> None:
    """Whose request is served changes nothing of what a query gets, so evidence holds on; other limits are policy."""
    plain = release_data()
    plain.pop("limits", None)
    if others:
        plain["limits"] = dict(others)
    shared = {**plain, "limits": {**others, "tenants": {"acme": {"weight": 3, "requests_per_second": 5}}}}
    more = {**plain, "limits": {**others, "tenants": {"acme": {"weight": 2}}}}
    assert policy_digest(plain) == policy_digest(shared) == policy_digest(more)
    assert release_digest(plain) != release_digest(shared) != release_digest(more)
    assert policy_digest(plain) != policy_digest({**shared, "limits": {"max_candidates": 51}})


@pytest.mark.parametrize("written", [None, 5, {}, {"max_candidates": 50}])
def test_limits_without_tenants_are_as_they_were(written: Any) -> None:
    """Digests of releases that name no tenants are those of their JSON without name and evidence."""
    assert policy_digest({"limits": written}) == release_digest({"limits": written})
