"""Say in words why a request was decided as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cascade.cli.explain_line import ExplainedEstimates, ExplainedLine, ExplainedRound
from cascade.cli.explain_meanings import ACTIONS, ARMS, DEGRADED, DEPTH_REASONS, MISFITS, meaning
from cascade.types import Arm

__all__ = ["Said", "pair_words", "words_of"]

Said = tuple[str, tuple[str, ...]]
"""What is spoken of, and the lines on it."""


def words_of(line: ExplainedLine, head: Mapping[str, Any] | None) -> Iterator[Said]:
    """Yield what a decision tells, from which request it was to what was answered."""
    yield "request", tuple(_request(line))
    yield "release", tuple(_release(line, head))
    yield "depth", (f"{line.depth} of {line.candidates} candidates: {meaning(DEPTH_REASONS, line.depth_reason)}",)
    if line.signals or line.query_class is not None:
        yield "signals", tuple(_signals(line))
    yield "action", tuple(_action(line))
    if line.estimates is not None:
        yield "estimates", (_estimates(line.estimates),)
    yield "rounds", tuple(map(_round, line.rounds)) or ("none: no stage was asked",)
    if line.degraded:
        yield "degraded", tuple(f"{reason}: {meaning(DEGRADED, reason)}" for reason in line.degraded)
    if line.excluded:
        yield "left out", (_excluded(line.excluded),)
    if line.beside is not None or line.would is not None:
        yield "observed", tuple(_observed(line))
    yield "answer", tuple(_answer(line))


def pair_words(line: ExplainedLine, pair: ExplainedLine) -> Said:
    """Say how the shadow beside a decision differs from it, whichever of the two is asked about."""
    answered, shadow = (pair, line) if line.of is not None else (line, pair)
    common = len(set(answered.escalated) & set(shadow.escalated))
    said = [
        f"{shadow.decision_id} of release {shadow.release} beside {answered.decision_id} of {answered.release}",
        f"depth {shadow.depth} beside {answered.depth}; {shadow.action} beside {answered.action}",
        f"sent {len(shadow.escalated)} beside {len(answered.escalated)}, {common} of them the same",
        f"placed by {shadow.stage} beside {answered.stage}; {_ms(shadow.total_ms)} beside {_ms(answered.total_ms)}",
    ]
    if shadow.degraded:
        said.append(f"the shadow was degraded: {', '.join(shadow.degraded)}")
    return "shadow", tuple(said)


def _request(line: ExplainedLine) -> Iterator[str]:
    tenant = "" if line.tenant is None else f", tenant {line.tenant}"
    when = "" if line.time is None else f"{line.time}, "
    yield f"{when}query {line.query_hash}{tenant}, {line.dialect}"
    yield f"{line.candidates} candidates, {line.top_n} to answer, {_ms(line.deadline_ms)} to do it in"


def _release(line: ExplainedLine, head: Mapping[str, Any] | None) -> Iterator[str]:
    if head is None:
        yield line.release
    else:
        yield f"{line.release}, {head.get('release_digest')}, mode {head.get('mode')}"
    yield f"load level {line.load_level}"
    of = "" if line.of is None else f" {line.of}"
    yield f"arm {line.arm}{of}: {meaning(ARMS, line.arm)}"
    if line.propensity is not None and line.sample:
        odds = line.propensity / line.sample
        recorded = "all queries" if line.sample == 1 else f"{100 * line.sample:.4g}% of the queries"
        yield f"recorded are {recorded}; this arm had a probability of {odds:.4g}"


def _signals(line: ExplainedLine) -> Iterator[str]:
    if line.query_class is not None:
        yield f"query class {line.query_class}"
    for name, value in sorted(line.signals.items()):
        yield f"{name} {'missing' if value is None else f'{value:g}'}"


def _action(line: ExplainedLine) -> Iterator[str]:
    yield f"{line.action}: {meaning(ACTIONS, line.action)}"
    if line.escalated:
        yield f"sent to the large stage, best first: {_places(line.escalated)}"
    if line.misfit is not None:
        yield f"the calibration does not hold: {line.misfit}: {meaning(MISFITS, line.misfit)}"


def _estimates(told: ExplainedEstimates) -> str:
    acceptable = "" if told.p_acceptable is None else f", the small order acceptable with {told.p_acceptable:.4g}"
    return (
        f"for the top {told.k}: the surest first place has {_number(told.p_first)}, margin {_number(told.margin)}, "
        f"entropy {_number(told.entropy)} nats, expected loss of the small order {_number(told.expected_loss)}{acceptable}"
    )


def _round(one: ExplainedRound) -> str:
    counts = ((one.cached, "of them from the cache"), (one.blank, "blank"), (one.refused, "refused"))
    left = ", ".join(f"{count} {what}" for count, what in counts if count)
    outcome = "went well" if one.outcome == "ok" else f"{one.outcome}{f' ({one.code})' if one.code else ''}"
    tokens = "" if one.tokens is None else f", {one.tokens} tokens{' by estimate' if one.tokens_estimated else ''}"
    padded = f" and {one.padding} of padding" if one.padding else ""
    more = f", {one.windows} further windows of long documents" if one.windows else ""
    cut = f", {one.truncated} pairs not read in full" if one.truncated else ""
    mended = f", an order in which {one.repaired} things had to be mended" if one.repaired else ""
    held = f", {one.prefix_tokens} of them in the server's prefix cache" if one.prefix_tokens else ""
    kept = ", of those from the cache it is not known what was read" if one.cached else ""
    asked = "asked for" if one.cached else "sent"
    waits = ((one.room_ms, "for room"), (one.queue_ms, "in the server's queue"))
    waited = "".join(f", {_ms(ms)} {what}" for ms, what in waits if ms)
    return (
        f"{one.stage} ({one.model}): {one.sent} {asked}, {one.scored} scored{f', {left}' if left else ''}: {outcome} "
        f"in {_ms(one.elapsed_ms)}{waited}{tokens}{held}{padded}{more}{cut}{mended}{kept}"
    )


def _excluded(excluded: int | Sequence[int]) -> str:
    if isinstance(excluded, int):
        return f"{excluded} candidates were blank or refused by a stage"
    return f"blank, or refused by a stage: {_places(excluded)}"


def _observed(line: ExplainedLine) -> Iterator[str]:
    if line.would is None:
        yield f"what the release would have decided is not known: the small stage beside the answer: {line.beside}"
        return
    would = line.would
    yield f"in mode cascade it would have scored {would.depth}: {meaning(DEPTH_REASONS, would.depth_reason)}"
    sent = f", sending {_places(would.escalated)} in {would.rounds} rounds" if would.escalated else ""
    yield f"and taken {would.action}: {meaning(ACTIONS, would.action)}{sent}"
    if would.estimates is not None:
        yield _estimates(would.estimates)
    if would.misfit is not None:
        yield f"the calibration would not have held: {would.misfit}: {meaning(MISFITS, would.misfit)}"


def _answer(line: ExplainedLine) -> Iterator[str]:
    if line.outcome == "refused" and line.arm is not Arm.SHADOW:
        yield "the caller got an error in place of a degraded order"
    yield f"first place by the {line.stage} stage" if line.stage != "retrieval" else "first-stage order stands first"
    yield f"{line.rank_changes_at_5} of the first five places hold another candidate than in first-stage order"
    yield f"{_ms(line.total_ms)} in all, {_ms(line.own_ms)} of them without a stage being waited for"


def _places(places: Sequence[int]) -> str:
    """Return positions in the request, from 0."""
    shown = ", ".join(map(str, places[:20]))
    return f"{shown} and {len(places) - 20} more" if len(places) > 20 else shown


def _ms(value: float) -> str:
    return f"{value:.1f} ms"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
