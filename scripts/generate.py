"""Write the files that derive from code, or with --check fail where one has drifted."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
from chart_schema import values_schema
from cli_reference import command_line
from dashboards.render import dashboards
from dialect_pages import dialect_pages
from errors_reference import errors
from reference import configuration, metrics, signals
from traces_reference import traces

from cascade.server.openapi import openapi

_ROOT = Path(__file__).parents[1]
_DASHBOARDS = (_ROOT / "deploy" / "grafana" / "dashboards", _ROOT / "deploy" / "helm" / "cascade" / "dashboards")
"""A chart packs what is in its own folder alone."""
_TRACES = _ROOT / "docs" / "tracing.md"
_VALUES = _ROOT / "deploy" / "helm" / "cascade" / "values.schema.json"


def main() -> int:
    """Write or compare; return the exit status."""
    made = {
        _ROOT / "docs" / "openapi.json": orjson.dumps(openapi(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        + b"\n",
        _ROOT / "docs" / "configuration.md": configuration().encode(),
        _ROOT / "docs" / "metrics.md": metrics().encode(),
        _ROOT / "docs" / "signals.md": signals().encode(),
        _ROOT / "docs" / "cli.md": command_line().encode(),
        _ROOT / "docs" / "errors.md": errors().encode(),
        **{_ROOT / "docs" / "dialects" / name: text.encode() for name, text in dialect_pages().items()},
        _TRACES: traces(_TRACES),
        _VALUES: values_schema(_VALUES),
        **{folder / name: text for folder in _DASHBOARDS for name, text in dashboards().items()},
    }
    drifted = [path for path, text in made.items() if not path.is_file() or path.read_bytes() != text]
    if "--check" in sys.argv[1:]:
        for path in drifted:
            print(f"{path.relative_to(_ROOT)} has drifted from the code; run scripts/generate.py", file=sys.stderr)
        return 1 if drifted else 0
    for path in drifted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made[path])
        print(f"wrote {path.relative_to(_ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
