"""Read a release from a file, and fill in the variables that it names."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

from cascade.errors import ConfigError
from cascade.policy.release import Release, parse_release, policy_digest, release_digest

__all__ = ["LoadedRelease", "default_release_path", "load_release", "variables_of"]

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DEFAULT: Final = "default.yaml"


@dataclass(frozen=True, slots=True)
class LoadedRelease:
    """A release that passed every check, with the digests of what was written.

    ``written`` is the mapping of the file with variables unexpanded; it holds no secret.
    """

    release: Release
    digest: str
    policy_digest: str
    written: Mapping[str, Any]


class _StrictLoader(yaml.SafeLoader):
    """Refuse a key that is given twice: one of the two would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise ConfigError(f"line {key_node.start_mark.line + 1}: {key} is given twice")
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def default_release_path() -> Path:
    """Return the release that ships with the package: beside the code when installed, in policies/ in a checkout."""
    packaged = Path(str(resources.files("cascade"))) / "_policies" / _DEFAULT
    return packaged if packaged.is_file() else Path(__file__).parents[2] / "policies" / _DEFAULT


def load_release(path: Path, environment: Mapping[str, str]) -> LoadedRelease:
    """Read, expand and check the release at ``path``.

    ``${NAME}`` in any string value stands for an environment variable. Raises ConfigError for a file
    that cannot be read, a duplicate or unknown key, a missing variable or a value out of range; the
    message never holds a variable's value.
    """
    try:
        written = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"release {path}: cannot be read: {type(error).__name__}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"release {path}: not valid YAML{_where(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"release {path}: {error}") from None
    if not isinstance(written, dict) or not all(isinstance(key, str) for key in written):
        raise ConfigError(f"release {path}: the file must hold one mapping")
    try:
        release = parse_release(_expand(written, environment))
        return LoadedRelease(release, release_digest(written), policy_digest(written), written)
    except ConfigError as error:
        raise ConfigError(f"release {path}: {error}") from None
    except TypeError:
        raise ConfigError(f"release {path}: only plain YAML values are allowed") from None


def variables_of(value: Any) -> set[str]:
    """Return the names of the variables that a release as written refers to."""
    match value:
        case str():
            return set(_VARIABLE.findall(value))
        case dict():
            return set().union(*map(variables_of, value.values()))
        case list():
            return set().union(*map(variables_of, value))
        case _:
            return set()


def _expand(value: Any, environment: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _VARIABLE.sub(lambda found: _lookup(found[1], environment), value)
        case dict():
            return {key: _expand(item, environment) for key, item in value.items()}
        case list():
            return [_expand(item, environment) for item in value]
        case _:
            return value


def _lookup(name: str, environment: Mapping[str, str]) -> str:
    try:
        return environment[name]
    except KeyError:
        raise ConfigError(f"the environment variable {name} is not set") from None


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" at line {mark.line + 1}" if mark is not None else ""
