"""Render the reference of configuration and metrics from the models and the registry."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cascade.policy import depth_rules as depth
from cascade.policy import escalation_rules as escalation
from cascade.policy import level_specs as levels
from cascade.policy import release as model
from cascade.policy.credentials import ClientCertificate
from cascade.server.key_file import KeyEntry
from cascade.server.settings import ENVIRONMENT_PREFIX, Settings
from cascade.signals.catalogue import SIGNALS
from cascade.telemetry.metrics import Metrics

__all__ = ["configuration", "metrics", "signals", "table", "type_name"]

_HTTP = tuple(
    name
    for spec in get_args(get_args(model.StageSpec)[0])
    if spec.model_fields.keys() == {*model.HttpStage.model_fields, "adapter"}
    for name in get_args(spec.model_fields["adapter"].annotation)
)
"""Adapters that declare what every server does, and no more."""


def configuration() -> str:
    """Return docs/configuration.md."""
    parts = [
        "# Configuration\n\nGenerated from the code (`scripts/generate.py`). *Settings* say where the sidecar listens and "
        "what it reads and writes; a *release* says how it behaves. Unknown keys are errors in both. A default of none is written as `null`.\n",
        "## Settings\n\nPrecedence: flag, environment, the file of `--config`, default. The environment variable of a "
        f"setting is its name in capitals behind `{ENVIRONMENT_PREFIX}` (two underscores). A relative path in a settings "
        "file counts from that file.\n",
        table(Settings),
        "### A file of keys\n\nA mapping with the one key `keys`, a list of these. `cascade keys new NAME` makes a key and its "
        "entry; [admission.md](admission.md) says what keys do.\n",
        table(KeyEntry),
        "## A release\n\n`${NAME}` in any string stands for an environment variable that the setting `release_variables` lets it name. A time not named by the caller, in "
        "`deadline_ms` or a header, is the release's `total_ms`.\n",
        table(model.Release),
        "### depth\n\nA bare integer means `fixed`. A depth of 0, or `skip`, scores nothing: first-stage order.\n",
        *_kinds(depth.SkipDepth, depth.FixedDepth, depth.GreedyDepth, depth.SignalsDepth, depth.GainDepth),
        "#### A rule of `signals`\n",
        table(depth.DepthRule),
        "#### A condition\n",
        table(depth.Condition),
        "#### A signal and a depth of `gain`\n\nWritten by fitting.\n",
        table(depth.GainSignal),
        table(depth.GainAtDepth),
        "### escalation\n\n`none`, or:\n",
        *_kinds(escalation.StaticEscalation, escalation.FusedEscalation, escalation.CalibratedEscalation),
        "#### accept\n",
        table(escalation.Accept),
        "#### direct\n",
        table(escalation.Direct),
        "### history\n",
        table(depth.HistoryNumbers),
        table(depth.TenantDifficulty),
        "### budgets\n\nA stage ends at its own budget or `reserve_ms` before the deadline, whichever is sooner. A caller "
        "with a shorter deadline than `total_ms` shortens the small stage's budget by the same factor. A deadline of "
        "`reserve_ms` or less leaves no time for stages: the answer is first-stage order.\n",
        table(model.Budgets),
        "### limits\n",
        table(model.Limits),
        "#### A tenant\n\nIn each process. What it means is in [admission.md](admission.md).\n",
        table(model.TenantLimits),
        "### levels\n\nA list. The first level is the release as it stands and has a name alone; each other one is the "
        "release with these keys in place of its own, and must be a valid release. What nothing reaches at a level is left "
        "out of it: without escalation the large stage. A release without `levels` has one, `normal`. Mode `observe` has "
        "none. Load steps through them, unless the setting `level` pins one.\n",
        table(levels.LevelSpec),
        "### overload\n\nHow levels are stepped is told in [overload.md](overload.md).\n",
        table(model.Overload),
        "### rollout\n\nNot part of the policy digest. What it is held against is told in [guardrails.md](guardrails.md).\n",
        table(model.RolloutRules),
        "#### shadow\n",
        table(model.ShadowRules),
        "#### guardrails\n\n`null` switches one off.\n",
        table(model.GuardrailLimits),
        "#### prices\n",
        table(model.Prices),
        "#### A smoke query\n\nIts text is in no log, error or table, and `config dump` tells its length alone.\n",
        table(model.SmokeQuery),
        "### evidence\n\nNot part of the policy digest. A digest is `sha256:` and that of the file's bytes.\n",
        table(model.Evidence),
        f"### stages: a server\n\nAdapters {', '.join(f'`{name}`' for name in _HTTP)}. Nothing declared here is sent to "
        "the server but `model`, `score_space` (as the request for raw scores) and `instruction`; what the server says of "
        "itself is in `/status`, and `cascade doctor` holds it against what is declared.\n",
        table(model.HttpStage, first={"adapter": "one of the names above"}),
        "#### breaker\n\nWhat opens it and closes it again is told in [faults.md](faults.md).\n",
        table(model.BreakerRules),
        "#### auth\n\nExactly one of:\n",
        table(model.Auth),
        "#### client_certificate\n\n[tls.md](tls.md) tells when renewed files are taken.\n",
        table(ClientCertificate),
        "### stages: a chat endpoint that orders lists (`chat`)\n\nOnly as the large stage, behind a `static` escalation. It is told of in "
        "[listwise.md](listwise.md).\n",
        table(model.ChatStage),
        "### stages: a cross-encoder on this machine (`onnx`)\n",
        table(model.OnnxStage),
        "### stages: a bi-encoder on this machine (`onnx-embedding`)\n",
        table(model.EmbeddingStage),
        "#### weights\n",
        table(model.Weights),
        "#### batching\n\n`{mode: one-pair}` scores one pair a call: exact for every model. Or:\n",
        table(model.TokenBudget),
        "#### windows\n\n[engine.md](engine.md#long-documents) tells how a document is cut.\n",
        table(model.Windows),
    ]
    return "\n".join(parts)


def table(cls: type[BaseModel], first: dict[str, str] | None = None) -> str:
    """Return the fields of a model as a table, behind those of ``first``, which are text and required."""
    rows = ["| key | type | default | what it is |", "|---|---|---|---|"]
    rows += [f"| `{name}` | string | required | {text} |" for name, text in (first or {}).items()]
    for name, info in cls.model_fields.items():
        rows.append(f"| `{name}` | {type_name(info)} | {_default(info)} | {info.description or ''} |")
    return "\n".join(rows) + "\n"


def _kinds(*models: type[BaseModel]) -> list[str]:
    """Return each kind with its one sentence and its keys."""
    parts = []
    for one in models:
        kind = get_args(one.model_fields["kind"].annotation)[0]
        sentence = (one.__doc__ or "").strip().splitlines()[0]
        parts.append(f"#### `{kind}`\n\n{sentence}\n")
        parts.append(table(one))
    return parts


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None:
        return "none"
    if isinstance(value, tuple):
        value = list(value)
    return f"`{value.value if isinstance(value, Enum) else value}`" if value != "" else '`""`'


def type_name(info: FieldInfo) -> str:
    """Return in words what a field may be."""
    bounds = ", ".join(_bounds(info))
    return ("; ".join(filter(None, (_name(info.annotation), bounds)))).replace("|", "or")


def _bounds(info: FieldInfo) -> Iterator[str]:
    for rule in info.metadata:
        for attribute, sign in (
            ("ge", "at least"),
            ("gt", "above"),
            ("le", "at most"),
            ("min_length", "length at least"),
        ):
            value = getattr(rule, attribute, None)
            if value is not None:
                yield f"{sign} {value:g}" if isinstance(value, float) else f"{sign} {value}"


def _name(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _name(parts[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in parts)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name(part) for part in parts if part is not type(None)))
    if origin in (tuple, list):
        return f"list of {_name(parts[0])}".rstrip()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    return _plain(annotation)


def _plain(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    known = {str: "string", int: "integer", float: "number", bool: "boolean"}.get(annotation)
    if known is not None:
        return known
    if get_origin(annotation) in (dict, Mapping):
        return "mapping"
    return {"Path": "path", "datetime": "time", "date": "day"}.get(getattr(annotation, "__name__", ""), "")


def metrics() -> str:
    """Return docs/metrics.md."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.stability} | {one.what} |"
        for one in Metrics().declared
    ]
    head = (
        "# Metrics\n\nGenerated from the code (`scripts/generate.py`). Served at `/metrics` on the admin listener. Labels "
        "have closed sets of values, but for names of tenants, releases and load levels, which are those of the release. Nothing holds text. "
        "A histogram `NAME` has the series `NAME_bucket`, `NAME_sum` and `NAME_count`.\n\n"
        "| promise | what it is |\n|---|---|\n"
        "| STABLE | Name, kind, unit and labels stay for all releases of a major version (from 1.0 on; until then a change is told in the "
        "changelog, with the name before kept for one minor version). A label may get further values, and a histogram further buckets |\n"
        "| EXPERIMENTAL | May change or go with any version; the changelog says so |\n\n"
        "[dashboards.md](dashboards.md) tells what draws them and how drift and rank movement are computed, "
        "[capacity.md](capacity.md#from-metrics) what reads the lengths of queries and pairs.\n"
    )
    return "\n".join([head, "| metric | kind | labels | promise | what it is |", "|---|---|---|---|---|", *rows]) + "\n"


def signals() -> str:
    """Return docs/signals.md."""
    rows = ["| signal | unit | range | formula | moves with | source |", "|---|---|---|---|---|---|"]
    for one in SIGNALS:
        cells = (
            f"`{one.name}`",
            one.unit,
            f"{one.least:g} to {one.most:g}",
            one.formula,
            ", ".join(sorted(one.moves_with)) or "nothing",
            one.source,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return (
        "# Signals\n\nGenerated from the code (`scripts/generate.py`). What the rules of `depth` and `direct` may read of a "
        "query before any model has run. `<channel>` is a first-stage channel of the request (a key of `first_stage`, or "
        "of a native candidate's `scores`), `<a>.<b>` a pair of them in name order. A signal whose inputs are missing has no value, and a condition "
        "on it never holds: so it is with signals of the small stage (`small.`), as the rules are read before it scores. Conditions may also ask for `query_class` (identifier, short-ambiguous, multi-part, other) "
        "and `script`. *Moves with* says what changes the value without changing an order or a gap: a constant added to "
        "a channel's scores (shift), all of them multiplied (scale).\n\n" + "\n".join(rows) + "\n"
    )
