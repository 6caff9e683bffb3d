"""What a release may name of the process that serves it: variables of its environment, and files of secrets.

Whoever writes releases says where requests are sent. Without a bound, any variable or file of one line could go there.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.policy.release import HttpStage, Release

__all__ = ["DEFAULT_FILES", "DEFAULT_VARIABLES", "NameableEnvironment", "checked_files", "checked_variables"]

DEFAULT_VARIABLES: Final = ("CASCADE_*", "SMALL_KEY", "LARGE_KEY")
DEFAULT_FILES: Final = ("/run/secrets/*", "/run/secrets/cascade/**")
"""Where orchestrators put secrets; not all below, since that is also where they put a pod's own tokens."""
_OF_SETTINGS: Final = "CASCADE__"


class NameableEnvironment(Mapping[str, str]):
    """The environment as a release may see it: all else looks as if it were not there, but for saying why.

    ``variables`` and ``files`` are as settings have them. ``kept`` are names of variables and files that settings have
    for themselves: never a release's. To look up what it may not name raises ConfigError.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        variables: Sequence[str] = DEFAULT_VARIABLES,
        files: Sequence[str] = DEFAULT_FILES,
        kept: Collection[str | Path] = (),
    ) -> None:
        self._environment = environment
        self._variables = variables
        self._files = files
        self._kept_names = {each for each in kept if isinstance(each, str)}
        self._kept_files = [each for each in kept if isinstance(each, Path)]

    def __getitem__(self, name: str) -> str:
        """Return the value of a variable. Raises KeyError where it is not set, ConfigError where it may not be named."""
        if not self._may_name(name):
            if self._is_kept(name):
                raise ConfigError(f"the environment variable {name} belongs to settings, and is no release's to name")
            raise ConfigError(
                f"the environment variable {name} is not among those that a release may name; a value replaces the default, so "
                f"keep what is there and add {name} to the setting "
                f"release_variables, which has {', '.join(self._variables) or 'none'}"
            )
        return self._environment[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._may_name(name) and name in self._environment

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._environment if self._may_name(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def check(self, release: Release) -> None:
        """Raise ConfigError where a stage names a variable or a file that it may not."""
        for where, stage in (("small", release.stages.small), ("large", release.stages.large)):
            if isinstance(stage, HttpStage):
                self._check_stage(f"stages.{where}", stage)

    def refused(self, variables: Collection[str], release: Release) -> Iterator[str]:
        """Say, one sentence each, which of its variables a release may not name, and where all are set the first file."""
        for name in sorted(variables):
            try:
                self.get(name)
            except ConfigError as error:
                yield str(error)
        if all(name in self for name in variables):
            try:
                self.check(release)
            except ConfigError as error:
                yield str(error)

    def _check_stage(self, where: str, stage: HttpStage) -> None:
        try:
            if stage.auth is not None and stage.auth.env is not None:
                self.get(stage.auth.env)
            for file in stage.secret_files:
                self._check_file(file)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def _may_name(self, name: str) -> bool:
        return not self._is_kept(name) and any(fnmatchcase(name, each) for each in self._variables)

    def _is_kept(self, name: str) -> bool:
        return name.startswith(_OF_SETTINGS) or name in self._kept_names

    def _check_file(self, file: str) -> None:
        path = Path(file)
        if any(_same(path, kept) for kept in self._kept_files):
            raise ConfigError(f"the file {file} belongs to settings, and is no release's to name")
        if ".." in path.parts or not any(_covers(each, path) for each in self._files):
            raise ConfigError(
                f"the file {file} is not among those that a release may name; a value replaces the default, so keep "
                f"what is there and add it, or its folder before /*, to the "
                f"setting release_files, which has {', '.join(self._files) or 'none'}"
            )


def checked_variables(value: Sequence[str]) -> Sequence[str]:
    """Return names, or beginnings of names before a ``*``. Raises ValueError for anything else."""
    for each in value:
        if not (each.removesuffix("*").isidentifier() and each.isascii()):
            raise ValueError("must be names of variables, or beginnings of names before a *")
    return value


def checked_files(value: Sequence[str]) -> Sequence[str]:
    """Return absolute paths, folders before ``/*`` or trees before ``/**``. Raises ValueError for anything else."""
    for each in value:
        place = _folder(each) or each
        if not posixpath.isabs(place) or "*" in place or ".." in Path(place).parts:
            raise ValueError("must be absolute paths, folders before /* or, with all below, before /**")
    return value


def _folder(entry: str) -> str | None:
    """Return the folder of an entry that ends with a star, None where it is a file."""
    for end in ("/**", "/*"):
        if entry.endswith(end):
            return entry.removesuffix(end) or "/"
    return None


def _covers(entry: str, path: Path) -> bool:
    folder = _folder(entry)
    if folder is None:
        return path == Path(entry)
    return path.is_relative_to(folder) if entry.endswith("/**") else path.parent == Path(folder)


def _same(path: Path, kept: Path) -> bool:
    return path == kept or path.resolve() == kept.resolve()
