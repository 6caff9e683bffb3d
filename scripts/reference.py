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
from cascade.server.key_file import KeyEntry
from cascade.server.settings import ENVIRONMENT_PREFIX, Settings
from cascade.signals.catalogue import SIGNALS
from cascade.telemetry.metrics import Metrics

__all__ = ["configuration", "metrics", "signals"]

_HTTP = ("tei", "vllm", "infinity", "llamacpp", "sglang", "nim", "cohere", "jina", "voyage", "mixedbread")


def configuration() -> str:
    """Return docs/configuration.md."""
    parts = [
        "# Configuration\n\nGenerated from the code (`scripts/generate.py`). *Settings* say where the sidecar listens and "
        "what it reads and writes; a *release* says how it behaves. Unknown keys are errors in both.\n",
        "## Settings\n\nPrecedence: flag, environment, the file of `--config`, default. The environment variable of a "
        f"setting is its name in capitals behind `{ENVIRONMENT_PREFIX}` (two underscores). A relative path in a settings "
        "file counts from that file.\n",
        _table(Settings),
        "### A file of keys\n\nA mapping with the one key `keys`, a list of these. `cascade keys new NAME` makes a key and its "
        "entry; [admission.md](admission.md) says what keys do.\n",
        _table(KeyEntry),
        "## A release\n\n`${NAME}` in any string stands for an environment variable. A time not named by the caller, in "
        "`deadline_ms` or a header, is the release's `total_ms`.\n",
        _table(model.Release),
        "### depth\n\nA bare integer means `fixed`. A depth of 0, or `skip`, scores nothing: first-stage order.\n",
        *_kinds(depth.SkipDepth, depth.FixedDepth, depth.GreedyDepth, depth.SignalsDepth, depth.GainDepth),
        "#### A rule of `signals`\n",
        _table(depth.DepthRule),
        "#### A condition\n",
        _table(depth.Condition),
        "#### A signal and a depth of `gain`\n\nWritten by fitting.\n",
        _table(depth.GainSignal),
        _table(depth.GainAtDepth),
        "### escalation\n\n`none`, or:\n",
        *_kinds(escalation.StaticEscalation, escalation.FusedEscalation, escalation.CalibratedEscalation),
        "#### accept\n",
        _table(escalation.Accept),
        "#### direct\n",
        _table(escalation.Direct),
        "### history\n",
        _table(depth.HistoryNumbers),
        _table(depth.TenantDifficulty),
        "### budgets\n\nA stage ends at its own budget or `reserve_ms` before the deadline, whichever is sooner. A caller "
        "with a shorter deadline than `total_ms` shortens the small stage's budget by the same factor. A deadline of "
        "`reserve_ms` or less leaves no time for stages: the answer is first-stage order.\n",
        _table(model.Budgets),
        "### limits\n",
        _table(model.Limits),
        "#### A tenant\n\nIn each process. What it means is in [admission.md](admission.md).\n",
        _table(model.TenantLimits),
        "### levels\n\nA list. The first level is the release as it stands and has a name alone; each other one is the "
        "release with these keys in place of its own, and must be a valid release. What nothing reaches at a level is left "
        "out of it: without escalation the large stage. A release without `levels` has one, `normal`. Mode `observe` has "
        "none. Load steps through them, unless the setting `level` pins one.\n",
        _table(levels.LevelSpec),
        "### overload\n\nHow levels are stepped is told in [overload.md](overload.md).\n",
        _table(model.Overload),
        "### rollout\n\nNot part of the policy digest. How a release is rolled out is told in [rollout.md](rollout.md).\n",
        _table(model.RolloutRules),
        "#### shadow\n",
        _table(model.ShadowRules),
        "#### guardrails\n\n`null` switches one off.\n",
        _table(model.GuardrailLimits),
        "#### prices\n",
        _table(model.Prices),
        "#### A smoke query\n\nIts text is in no log, error or table, and `config dump` tells its length alone.\n",
        _table(model.SmokeQuery),
        "### evidence\n\nNot part of the policy digest. A digest is `sha256:` and that of the file's bytes.\n",
        _table(model.Evidence),
        f"### stages: a server\n\nAdapters {', '.join(f'`{name}`' for name in _HTTP)}. Nothing declared here is sent to "
        "the server but `model`, `score_space` (as the request for raw scores) and `instruction`; what the server says of "
        "itself is in `/status`, and `cascade doctor` holds it against what is declared.\n",
        _table(model.HttpStage, first={"adapter": "one of the names above"}),
        "#### breaker\n\nWhat opens it and closes it again is told in [faults.md](faults.md).\n",
        _table(model.BreakerRules),
        "#### auth\n\nExactly one of:\n",
        _table(model.Auth),
        "### stages: a cross-encoder on this machine (`onnx`)\n",
        _table(model.OnnxStage),
        "### stages: a bi-encoder on this machine (`onnx-embedding`)\n",
        _table(model.EmbeddingStage),
        "#### weights\n",
        _table(model.Weights),
        "#### batching\n\n`{mode: one-pair}` scores one pair a call: exact for every model. Or:\n",
        _table(model.TokenBudget),
        "#### windows\n\n[engine.md](engine.md#long-documents) tells how a document is cut.\n",
        _table(model.Windows),
    ]
    return "\n".join(parts)


def _table(cls: type[BaseModel], first: dict[str, str] | None = None) -> str:
    rows = ["| key | type | default | what it is |", "|---|---|---|---|"]
    rows += [f"| `{name}` | string | required | {text} |" for name, text in (first or {}).items()]
    for name, info in cls.model_fields.items():
        rows.append(f"| `{name}` | {_type(info)} | {_default(info)} | {info.description or ''} |")
    return "\n".join(rows) + "\n"


def _kinds(*models: type[BaseModel]) -> list[str]:
    """Return each kind with its one sentence and its keys."""
    parts = []
    for one in models:
        kind = get_args(one.model_fields["kind"].annotation)[0]
        sentence = (one.__doc__ or "").strip().splitlines()[0]
        parts.append(f"#### `{kind}`\n\n{sentence}\n")
        parts.append(_table(one))
    return parts


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None or value in ({}, ()):
        return "none"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _type(info: FieldInfo) -> str:
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
    if origin is tuple:
        return f"list of {_name(parts[0])}"
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
    rows = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    registry = Metrics().registry
    for family in registry.collect():
        collector = registry._names_to_collectors[family.name]  # noqa: SLF001 - a label without values is told nowhere else
        labels = sorted(getattr(collector, "_labelnames", ()))
        suffix = "_total" if family.type == "counter" else ""
        rows.append(f"| `{family.name}{suffix}` | {family.type} | {', '.join(labels)} | {family.documentation} |")
    head = (
        "# Metrics\n\nGenerated from the code (`scripts/generate.py`). Served at `/metrics` on the admin listener. Labels "
        "have closed sets of values. All are EXPERIMENTAL: names may change before 1.0.\n"
    )
    return "\n".join([head, *rows]) + "\n"


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
