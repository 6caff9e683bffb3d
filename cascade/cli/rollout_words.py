"""Words, numbers and times of a rollout, safe on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

__all__ = [
    "duration",
    "figure",
    "headline",
    "notes",
    "number",
    "percent",
    "plain",
    "short_digest",
    "state_of",
    "steps_of",
    "tried_again",
    "when",
]

NONE: Final = "-"
_SHARES: Final = frozenset({"late", "errors", "fallback", "escalation"})
_DIGEST: Final = "sha256:"


def plain(value: Any) -> str:
    """Return it as text that does nothing to a terminal: what is no letter, sign or space becomes a question mark."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(value))


def is_number(value: Any) -> bool:
    """Tell whether it is a number that can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def percent(value: Any) -> str:
    """Return a share as percent, to four digits."""
    return f"{100 * value:.4g}%" if is_number(value) else NONE


def number(value: Any) -> str:
    """Return a number to three digits; a whole one in full."""
    if not is_number(value):
        return NONE
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def figure(name: str, value: Any, *, signed: bool = False) -> str:
    """Return a guardrail's number in its unit; ``signed`` is for its difference, which of the cost is relative."""
    if not is_number(value):
        return NONE
    said = f"{100 * value:.3g}%" if name in _SHARES or (signed and name == "cost") else f"{value:.3g}"
    return f"+{said}" if signed and value > 0 else said


def duration(seconds: Any) -> str:
    """Return a time in the largest unit that leaves two digits."""
    if not is_number(seconds):
        return NONE
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def when(written: Any, day: str = "") -> str:
    """Return a time as written by the sidecar, in UTC to the second: of ``day`` the hours, else the day and minutes."""
    if not written:
        return NONE
    try:
        at = datetime.fromisoformat(str(written)).astimezone(UTC)
    except (ValueError, OverflowError):
        return plain(written)
    if not day:
        return f"{at:%Y-%m-%d %H:%M:%S}"
    return f"{at:%H:%M:%S}" if f"{at:%Y-%m-%d}" == day else f"{at:%m-%d %H:%M}"


def short_digest(digest: Any, letters: int) -> str:
    """Return the beginning of a digest."""
    return plain(str(digest).removeprefix(_DIGEST)[:letters]) if digest else NONE


def state_of(status: Mapping[str, Any]) -> str:
    """Return the state in words."""
    return plain(status["state"]).replace("_", " ")


def headline(status: Mapping[str, Any]) -> str:
    """Return in one sentence where the rollout stands."""
    names = {role: plain((status.get(role) or {}).get("release", NONE)) for role in ("stable", "candidate", "refused")}
    state = str(status["state"])
    if state == "running" and not status["share"]:
        state = "beside"
    return _SENTENCES.get(state, _SENTENCES["idle"]).format(
        **names,
        share=percent(status["share"]),
        step=plain(status.get("activation_step")),
        refused_at=plain((status.get("refused") or {}).get("step")),
    )


_SENTENCES: Final = {
    "idle": "no rollout is under way; {stable} decides all traffic",
    "activating": "{candidate} is being activated, at the step {step}; {stable} decides all traffic",
    "running": "{candidate} decides {share} of the traffic, {stable} the rest",
    "beside": "{candidate} is scored beside the answers of {stable}, without traffic",
    "completed": "{stable} decides all traffic",
    "rolled_back": "{refused} was rolled back; {stable} decides all traffic",
    "refused": "{refused} was refused at {refused_at}; {stable} decides all traffic",
    "aborted": "{refused} was aborted; {stable} decides all traffic",
    "replaced": "{refused} was replaced; {stable} decides all traffic",
}


def tried_again(status: Mapping[str, Any]) -> Any:
    """Return when what was turned down last is tried again by itself, None where it is not."""
    desired, refused = status.get("desired"), status.get("refused")
    return desired.get("tried_again_at") if desired and refused and desired["digest"] == refused["digest"] else None


def notes(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else an operator should know: what comes by itself, and what is at fault."""
    if again := tried_again(status):
        yield f"{plain(status['refused']['release'])} is tried again at {when(again)}"
    if fault := (status.get("desired") or {}).get("fault"):
        yield f"what is desired cannot be used: {plain(fault)}"
    if fault := status.get("state_fault"):
        yield f"the state of rollouts cannot be kept, a restart goes on from what was kept last: {plain(fault)}"


def steps_of(status: Mapping[str, Any]) -> str:
    """Return the steps, the one of the moment in brackets, those that an operator went over marked."""
    skipped = set(status.get("promoted_without_evidence") or ())
    told = []
    for place, share in enumerate(status["steps"]):
        said = "beside" if share == 0 else f"{share:g}%"
        said = f"[{said}]" if place == status["step"] else said
        told.append(f"{said} (without evidence)" if place in skipped else said)
    return " -> ".join(told)
