"""Read a release from a file, and fill in the variables that it names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cascade.errors import ConfigError
from cascade.policy.release import Release, parse_release, policy_digest, release_digest
from cascade.rollout.nameable import NameableEnvironment
from cascade.rollout.source import Source, open_source
from cascade.rollout.strict_yaml import parse_mapping
from cascade.rollout.supplied import supplied_folder

__all__ = [
    "UNSET",
    "LoadedRelease",
    "default_release_path",
    "load_release",
    "named_release",
    "offline",
    "packaged_releases",
    "release_from",
    "variables_of",
]

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DEFAULT: Final = "default"
UNSET: Final = "http://unset.invalid"
"""What stands for a variable that is not set where no server is called."""


@dataclass(frozen=True, slots=True)
class LoadedRelease:
    """A release that passed every check, with the digests of what was written.

    ``written`` is the mapping of the file with variables unexpanded; it holds no secret.
    """

    release: Release
    digest: str
    policy_digest: str
    written: Mapping[str, Any]


def packaged_releases() -> dict[str, Path]:
    """Return the releases that ship with the package, by name: beside the code, or policies/ in a checkout."""
    return {path.stem: path for path in sorted(supplied_folder("policies").glob("*.yaml"))}


def default_release_path() -> Path:
    """Return the release that is served where none is named."""
    return packaged_releases()[_DEFAULT]


def named_release(written: str | Path) -> Path:
    """Return the path that is meant: that of the packaged release of this name, unless there is a file of the name."""
    packaged = packaged_releases()
    return packaged[str(written)] if str(written) in packaged and not Path(written).exists() else Path(written)


def load_release(path: Path, environment: Mapping[str, str]) -> LoadedRelease:
    """Read, expand and check the release at ``path``: a YAML file, or a bundle as a folder or a tar.

    ``${NAME}`` in any string value stands for an environment variable. Raises ConfigError for a file
    that cannot be read, a duplicate or unknown key, a missing variable or a value out of range; the
    message never holds a variable's value. Artefacts that it names are not looked at.
    """
    return release_from(open_source(path), environment)


def release_from(source: Source, environment: Mapping[str, str]) -> LoadedRelease:
    """Expand and check the release of an open source. Raises ConfigError as `load_release` does."""
    try:
        written = parse_mapping(source.text)
        release = parse_release(_expand(written, environment))
        if isinstance(environment, NameableEnvironment):
            environment.check(release)
        return LoadedRelease(release, release_digest(written), policy_digest(written), written)
    except ConfigError as error:
        raise ConfigError(f"release {source.path}: {error}") from None
    except TypeError:
        raise ConfigError(f"release {source.path}: only plain YAML values are allowed") from None


def offline(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment in which every variable is set, to look at a release without calling its servers."""
    return defaultdict(lambda: UNSET, environment)


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


def _expand(value: Any, environment: Mapping[str, str], key: str = "") -> Any:
    """Fill in the variables of ``value``, which stands at ``key``."""
    match value:
        case str():
            if "${" in _VARIABLE.sub("", value):
                raise ConfigError(f"{key}: ${{ begins a variable, as in ${{NAME}}, and a name is all it holds")
            return _VARIABLE.sub(lambda found: _lookup(found[1], environment, key), value)
        case dict():
            return {name: _expand(item, environment, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
        case list():
            return [_expand(item, environment, key) for item in value]
        case _:
            return value


def _lookup(name: str, environment: Mapping[str, str], key: str) -> str:
    try:
        return environment[name]
    except KeyError:
        raise ConfigError(f"{key}: the environment variable {name} is not set") from None
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
