"""Render the reference of configuration and metrics from the models and the registry."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cascade.policy import release as model
from cascade.server.settings import ENVIRONMENT_PREFIX, Settings
from cascade.telemetry.metrics import Metrics

__all__ = ["configuration", "metrics"]

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
        "## A release\n\n`${NAME}` in any string stands for an environment variable. A time not named by the caller, in "
        "`deadline_ms` or a header, is the release's `total_ms`.\n",
        _table(model.Release),
        "### depth\n\nA bare integer, or:\n",
        _table(model.Depth),
        "### escalation\n\n`none`, or the top of the small order goes to the large stage:\n",
        _table(model.StaticEscalation),
        "### budgets\n\nA stage ends at its own budget or `reserve_ms` before the deadline, whichever is sooner. A caller "
        "with a shorter deadline than `total_ms` shortens the small stage's budget by the same factor. A deadline of "
        "`reserve_ms` or less leaves no time for stages: the answer is first-stage order.\n",
        _table(model.Budgets),
        "### limits\n",
        _table(model.Limits),
        f"### stages: a server\n\nAdapters {', '.join(f'`{name}`' for name in _HTTP)}. Nothing declared here is sent to "
        "the server but `model`, `score_space` (as the request for raw scores) and `instruction`; what the server says of "
        "itself is in `/status`, and `cascade doctor` holds it against what is declared.\n",
        _table(model.HttpStage, first={"adapter": "one of the names above"}),
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
    ]
    return "\n".join(parts)


def _table(cls: type[BaseModel], first: dict[str, str] | None = None) -> str:
    rows = ["| key | type | default | what it is |", "|---|---|---|---|"]
    rows += [f"| `{name}` | string | required | {text} |" for name, text in (first or {}).items()]
    for name, info in cls.model_fields.items():
        rows.append(f"| `{name}` | {_type(info)} | {_default(info)} | {info.description or ''} |")
    return "\n".join(rows) + "\n"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None or value == {}:
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
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        return _name(get_args(annotation)[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name(part) for part in get_args(annotation) if part is not type(None)))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return {str: "string", int: "integer", float: "number", bool: "boolean"}.get(annotation, _plain(annotation))


def _plain(annotation: Any) -> str:
    return (
        "mapping" if get_origin(annotation) is dict else "path" if getattr(annotation, "__name__", "") == "Path" else ""
    )


def metrics() -> str:
    """Return docs/metrics.md."""
    rows = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for family in Metrics().registry.collect():
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        suffix = "_total" if family.type == "counter" else ""
        rows.append(f"| `{family.name}{suffix}` | {family.type} | {', '.join(labels)} | {family.documentation} |")
    head = (
        "# Metrics\n\nGenerated from the code (`scripts/generate.py`). Served at `/metrics` on the admin listener. Labels "
        "have closed sets of values. All are EXPERIMENTAL: names may change before 1.0.\n"
    )
    return "\n".join([head, *rows]) + "\n"
