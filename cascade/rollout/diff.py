"""Say what changes for traffic from one release to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel

from cascade.policy.release import Budgets, Limits, Overload, Release
from cascade.rollout.bundle import Bundle
from cascade.rollout.words import calibration_lines, depth_words, escalation_words, level_words, stage_words
from cascade.types import Fingerprint

__all__ = ["differences", "rollout_differences"]

_IN_WORDS: Final = ("depth", "escalation", "levels")
_NO_POLICY: Final = frozenset({"release", "evidence", "rollout", *_IN_WORDS})
_SCORES: Final = frozenset(Fingerprint.__dataclass_fields__) | {
    "weights",
    "pooling",
    "adapter",
    "windows",
    "activation",
    "passage_tokens",
    "answer_tokens",
    "seed",
    "form",
    "broken_order",
    "thinking",
}
_UNSAID: Final = "not there"
_OTHER_SCORES: Final = "; its scores are others"
_Part = TypeVar("_Part", bound=BaseModel)


def differences(one: Bundle, other: Bundle) -> list[str]:
    """Return a line for each thing that another release does otherwise; none where traffic sees no change.

    Variables are compared as written, unexpanded.
    """
    before, after = one.loaded.release, other.loaded.release
    return [*_depth(before, after), *_escalation(one, other), *_levels(before, after), *_fields(one, other)]


def rollout_differences(one: Bundle, other: Bundle) -> list[str]:
    """Return a line for each thing that is rolled out otherwise; it changes no answer. Of smoke queries no text is told."""
    before, after = (bundle.loaded.release.rollout for bundle in (one, other))
    mine, theirs = (_leaves(rules.model_dump(mode="json", exclude={"smoke"}), "rollout.") for rules in (before, after))
    told = [_change(key, mine, theirs) for key in _unequal(mine, theirs)]
    return told if before.smoke == after.smoke else [*told, "rollout: the smoke queries are others"]


def _depth(before: Release, after: Release) -> Iterator[str]:
    yield from _changed("depth", depth_words, before.depth, after.depth)


def _escalation(one: Bundle, other: Bundle) -> Iterator[str]:
    yield from _changed("escalation", escalation_words, one.loaded.release.escalation, other.loaded.release.escalation)
    digests = one.loaded.release.calibration, other.loaded.release.calibration
    if digests[0] != digests[1]:
        yield f"calibration: {digests[0] or 'none'} -> {digests[1] or 'none'}"
        told = [_calibration(bundle) for bundle in (one, other)]
        yield from (f"  was: {line}" for line in told[0] if line not in told[1])
        yield from (f"  now: {line}" for line in told[1] if line not in told[0])


def _levels(before: Release, after: Release) -> Iterator[str]:
    mine, theirs = ({level.name: level for level in release.levels} for release in (before, after))
    for name, level in mine.items():
        if name not in theirs:
            yield f"level {name}: {level_words(level)} -> {_UNSAID}"
    for name, level in theirs.items():
        if name not in mine:
            yield f"level {name}: {_UNSAID} -> {level_words(level)}"
        else:
            yield from _changed(f"level {name}", level_words, mine[name], level)
    kept = [[name for name in names if name in mine and name in theirs] for names in (mine, theirs)]
    if kept[0] != kept[1]:
        yield f"levels, cheapest last: {', '.join(mine)} -> {', '.join(theirs)}"


def _changed(name: str, words: Callable[[_Part], str], before: _Part, after: _Part) -> Iterator[str]:
    """Say it in words, and name the keys whose change is not in them."""
    said, says = words(before), words(after)
    if said != says:
        yield f"{name}: {said} -> {says}"
    mine, theirs = _leaves(before.model_dump(mode="json")), _leaves(after.model_dump(mode="json"))
    unsaid = [place for place, alone in _one_by_one(before, after) if words(alone) == said]
    for key in _unequal(mine, theirs):
        if any(f"{key}.".startswith(f"{place}.") for place in unsaid) and key.rpartition(".")[2] != "calibration":
            yield f"{name}.{_change(key, mine, theirs)}"


def _one_by_one(before: _Part, after: _Part) -> Iterator[tuple[str, _Part]]:
    """Yield each place where two parts of one kind differ, with the first as it is with that alone changed."""
    if type(before) is not type(after):
        return
    for name in type(before).model_fields:
        mine, theirs = getattr(before, name), getattr(after, name)
        if mine == theirs:
            continue
        if isinstance(mine, BaseModel) and type(mine) is type(theirs):
            for place, alone in _one_by_one(mine, theirs):
                yield f"{name}.{place}", before.model_copy(update={name: alone})
        else:
            yield name, before.model_copy(update={name: theirs})


def _calibration(bundle: Bundle) -> list[str]:
    if bundle.calibration is None:
        return [] if bundle.fault is None else [f"cannot be used: {bundle.fault}"]
    return calibration_lines(bundle.calibration.artefact)


def _stages(before: Release, after: Release) -> dict[str, str]:
    """Return a sentence for each stage that came, went or is of another adapter, by name."""
    pairs = {name: (getattr(before.stages, name), getattr(after.stages, name)) for name in ("small", "large")}
    return {
        name: f"stages.{name}: {stage_words(one)} -> {stage_words(other)}{_OTHER_SCORES}"
        for name, (one, other) in pairs.items()
        if getattr(one, "adapter", None) != getattr(other, "adapter", None)
    }


def _fields(one: Bundle, other: Bundle) -> Iterator[str]:
    mine, theirs = _written_leaves(one), _written_leaves(other)
    replaced = _stages(one.loaded.release, other.loaded.release)
    yield from replaced.values()
    for key in _unequal(mine, theirs):
        section, *rest = key.split(".")
        of_stage = section == "stages"
        if of_stage and rest[0] in replaced:
            continue
        moves = of_stage and (rest[1] in _SCORES or rest[1:] == ["batching", "mode"])
        yield _change(key, mine, theirs) + (_OTHER_SCORES if moves else _meaning(section, rest))


def _meaning(section: str, rest: list[str]) -> str:
    """Return what a key of budgets, limits or overload is, as the reference says it."""
    models: Mapping[str, type[BaseModel]] = {"budgets": Budgets, "limits": Limits, "overload": Overload}
    described = models[section].model_fields[rest[0]].description if section in models else None
    return "" if described is None else f" ({described})"


def _written_leaves(bundle: Bundle) -> dict[str, str]:
    """Return every value with its default filled in, and as written where a variable stands."""
    whole = _leaves(bundle.loaded.release.model_dump(mode="json", exclude=set(_NO_POLICY)))
    written = {key: value for key, value in _leaves(bundle.loaded.written).items() if "${" in value}
    return whole | {key: value for key, value in written.items() if key.partition(".")[0] not in _NO_POLICY}


def _unequal(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]


def _change(key: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    return f"{key}: {mine.get(key, _UNSAID)} -> {theirs.get(key, _UNSAID)}"


def _leaves(value: Mapping[str, Any], lead: str = "") -> dict[str, str]:
    """Return values by dotted key, None for not set left out; lists are one value."""
    found: dict[str, str] = {}
    for name, item in value.items():
        key = f"{lead}{name}"
        if isinstance(item, Mapping):
            found |= _leaves(item, f"{key}.")
        elif item is not None:
            found[key] = _value(item)
    return found


def _value(item: object) -> str:
    """Return a value as it is shown: two that differ are never shown alike."""
    if isinstance(item, str):
        return item
    if isinstance(item, float) and float(short := f"{item:g}") == item:
        return short
    return orjson.dumps(item).decode()
