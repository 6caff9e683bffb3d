"""Whether traffic has left what the calibration was fitted on, as /metrics tells it."""

from __future__ import annotations

import math
from typing import Any, Final

from cascade.calibration.artefact import Reference, ReferenceBins
from cascade.calibration.calibrated import Calibration
from cascade.testing.calibration import scripted_artefact
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from tests.server.sidecar import BODIES, Sidecar, bundle_of, release_of, sidecar

_BINS: Final = ReferenceBins(edges=(0.5,), shares=(0.5, 0.5))
_FITTED: Final = Calibration(
    scripted_artefact((), reference=Reference(candidates=2, score=_BINS, margin=_BINS)), "sha256:" + "1" * 64
)
_ESCALATION: Final = {"kind": "calibrated", "calibration": _FITTED.sha256, "price_per_pair": 0.001, "k": 5}
_SCORE: Final = 'cascade_calibration_drift_answers{of="score"}'
_PSI: Final = 'cascade_calibration_drift_psi{of="score"}'


def _served(**fields: Any) -> Sidecar:
    bundle = bundle_of(release_of(escalation=_ESCALATION, **fields), _FITTED)
    return sidecar(ScriptedStage(overlap), ScriptedStage(overlap), bundle=bundle)


async def _ask(served: Sidecar, count: int, texts: list[str]) -> None:
    for _ in range(count):
        assert (await served.post("/rerank", BODIES["tei"]("bird", texts))).status_code == 200


async def test_answers_are_held_against_the_reference_of_their_calibration() -> None:
    """All of 200 are above the middle of the training queries: half of them were. Fewer have no index."""
    served = _served()
    await _ask(served, 199, ["bird", "fish", "stone"])
    shown = await served.metrics()
    assert shown[_SCORE] == 199
    assert math.isnan(shown[_PSI])
    await _ask(served, 1, ["bird", "fish", "stone"])
    assert (await served.metrics())[_PSI] > 1.0


async def test_answers_of_fewer_candidates_than_the_reference_counts_are_left_out() -> None:
    """The best of one is no best of two."""
    served = _served()
    await _ask(served, 3, ["bird"])
    assert (await served.metrics())[_SCORE] == 0


async def test_a_canary_is_not_the_stable_releases_traffic() -> None:
    """What it answers is held against its own calibration, which is shown once it is stable; the window of before goes."""
    served = _served()
    await _ask(served, 2, ["bird", "fish"])
    traffic, service = served.service.traffic, served.service
    other = service.open_release(
        bundle_of(release_of(release="other-1", escalation=_ESCALATION), _FITTED, "sha256:other")
    )
    traffic.split(other, 1.0)
    await _ask(served, 3, ["bird", "fish"])
    assert (await served.metrics())[_SCORE] == 2
    await traffic.activate(other).aclose()
    assert (await served.metrics())[_SCORE] == 3


async def test_a_release_without_a_reference_shows_nothing() -> None:
    """No series, so that no alert can fire on what is not known."""
    served = sidecar()
    await _ask(served, 1, ["bird", "fish"])
    assert not [name for name in await served.metrics() if "drift" in name]
