"""Hold JSON against the schemas that this project's document uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["fits"]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "boolean": (bool,),
}


def fits(value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> bool:
    """Tell whether a value is what a schema describes: types, required keys, and no key that it does not know."""
    if "$ref" in schema:
        return fits(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return any(fits(value, each, schemas) for each in schema["anyOf"])
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    if value not in allowed or ("type" in schema and not isinstance(value, _TYPES[schema["type"]])):
        return False
    if isinstance(value, list):
        return all(fits(item, schema["items"], schemas) for item in value)
    if not isinstance(value, dict) or "properties" not in schema:
        return True
    known = schema["properties"]
    return set(schema.get("required", ())) <= set(value) <= set(known) and all(
        fits(item, known[name], schemas) for name, item in value.items()
    )
