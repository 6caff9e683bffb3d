"""What the closed words of a decision mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cascade.decision import Action, DegradedReason
from cascade.policy.depth import DepthReason
from cascade.types import Arm

__all__ = ["ACTIONS", "ARMS", "DEGRADED", "DEPTH_REASONS", "MISFITS", "meaning"]

ARMS: Final[Mapping[str, str]] = {
    Arm.STABLE: "the release that answers whatever no canary does",
    Arm.CANARY: "a release that is being tried on a share of the traffic",
    Arm.SHADOW: "scored beside the answer of another release; nobody waited for it",
}
ACTIONS: Final[Mapping[str, str]] = {
    Action.NONE: "nothing goes to the large stage",
    Action.STATIC: "as many go to the large stage for every query",
    Action.ACCEPT: "the small order stands: nothing was worth its price, or it was sure enough",
    Action.CLUSTER: "the candidates that were worth their price go to the large stage",
    Action.QUERY: "all candidates within depth go to the large stage",
    Action.DIRECT: "the query goes past the small stage",
    Action.SAFE: "the calibration does not hold for this request, and the top of the small order is sent in its place",
}
DEPTH_REASONS: Final[Mapping[str, str]] = {
    DepthReason.FIXED: "the same for every query",
    DepthReason.SKIP: "the release scores nothing",
    DepthReason.DEFAULT: "no rule matched",
    DepthReason.CLASS: "the depth of its query class",
    DepthReason.RULE: "a rule on signals matched",
    DepthReason.GAIN: "where the predicted gain no longer pays",
    DepthReason.DUPLICATE_HEAD: "the head repeats itself, and so it was not skipped",
    DepthReason.NO_ANSWER: "no channel tells head from tail, and so it was not deepened",
    DepthReason.OBSERVE: "all that may be scored, as in mode observe",
    DepthReason.NOT_ADMITTED: "no stage was asked: the request got no seat",
    "": "nothing was decided: a blank query, or no time",
}
DEGRADED: Final[Mapping[str, str]] = {
    DegradedReason.STAGE_TIMEOUT: "a stage had not answered when its time was over",
    DegradedReason.STAGE_UNREACHABLE: "no whole answer of a stage came: refused, reset, cut, or a name that is not known",
    DegradedReason.STAGE_OVERLOADED: "a stage, or what guards it, had no room",
    DegradedReason.STAGE_REFUSED: "a stage refused the request: credentials, model, route or size",
    DegradedReason.STAGE_INVALID_ANSWER: "what a stage answered cannot be trusted as scores",
    DegradedReason.BREAKER_OPEN: "a stage was not asked, as it failed too often of late",
    DegradedReason.DEADLINE_TOO_SHORT: "what was left of the time is less than a stage takes",
    DegradedReason.LOAD_LEVEL: "under load less was scored than the release would have",
    DegradedReason.CALIBRATION_MISMATCH: "the calibration does not hold for this request or for these servers",
    DegradedReason.INTERNAL_ERROR: "a fault of the sidecar itself",
}
MISFITS: Final[Mapping[str, str]] = {
    "no_calibration": "none is in use: it was fitted for other servers, or is not there",
    "candidates_out_of_range": "more candidates than it was fitted on, or fewer",
    "too_few_scores": "too few candidates have a score that it reads",
    "channel_missing": "the request carries no scores of a channel that it reads",
}


def meaning(words: Mapping[str, str], word: str) -> str:
    """Return what a word means; of one that is not known here, as a later version may write, that."""
    return words.get(word, "not known to this version")
