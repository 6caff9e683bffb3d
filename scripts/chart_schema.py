"""Put the settings that a chart's values may have into the schema of its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

from cascade.server.settings import Settings

__all__ = ["OF_THE_CHART", "values_schema"]

OF_THE_CHART: Final = frozenset(
    {"host", "port", "admin_host", "admin_port", "release", "state_folder", "keys_file", "admin_keys_file"}
)
"""Settings that the chart itself sets, from other values."""


def values_schema(path: Path) -> bytes:
    """Return the schema that stands in a file, with the settings of the code in it; all else is written by hand."""
    schema = orjson.loads(path.read_bytes())
    told = Settings.model_json_schema(mode="validation")["properties"]
    schema["properties"]["settings"]["properties"] = {
        name: _plain(told[name]) for name in told if name not in OF_THE_CHART
    }
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2) + b"\n"


def _plain(told: dict[str, Any]) -> dict[str, Any]:
    """Return what a setting may be, without its default, title and format."""
    if "anyOf" in told:
        return {"description": told["description"], "anyOf": [_plain(each) for each in told["anyOf"]]}
    return {name: value for name, value in told.items() if name not in {"default", "title", "format"}}
