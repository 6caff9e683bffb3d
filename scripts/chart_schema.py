"""Put the settings that a chart's values may have into the schema of its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

from cascade.server.settings import Settings

__all__ = ["OF_THE_CHART", "values_schema"]

OF_THE_CHART: Final = frozenset(
    {
        "host", "port", "admin_host", "admin_port", "release", "state_folder", "keys_file", "admin_keys_file",
        "tls_certificate_file", "tls_key_file", "tls_client_ca_file",
        "admin_tls_certificate_file", "admin_tls_key_file", "admin_tls_client_ca_file",
    }
)  # fmt: skip
"""Settings that the chart itself sets, from other values."""


def values_schema(path: Path) -> bytes:
    """Return the schema that stands in a file, with the settings of the code in it; all else is written by hand."""
    schema = orjson.loads(path.read_bytes())
    whole = Settings.model_json_schema(mode="validation")
    told, parts = whole["properties"], whole.get("$defs", {})
    schema["properties"]["settings"]["properties"] = {
        name: _plain(told[name], parts) for name in told if name not in OF_THE_CHART
    }
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2) + b"\n"


def _plain(told: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return what a setting may be, without its default, title and format; what it refers to stands in its place."""
    named = sorted(told, key=lambda name: name != "description")
    plain = {name: told[name] for name in named if name not in {"default", "title", "format", "$ref"}}
    if "$ref" in told:
        return _plain(parts[told["$ref"].rpartition("/")[2]], parts) | plain
    for name in ("anyOf", "allOf"):
        if name in plain:
            plain[name] = [_plain(each, parts) for each in plain[name]]
    if "items" in plain:
        plain["items"] = _plain(plain["items"], parts)
    return plain
