"""A release with what it names: loaded to serve, or packed so that it can be carried and kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from cascade.calibration.artefact import parse_artefact
from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.rollout.artefacts import ARTEFACTS_FOLDER, Artefacts, artefact_name
from cascade.rollout.load import LoadedRelease, offline, release_from
from cascade.rollout.names import RELEASE_NAME
from cascade.rollout.source import Source, open_source
from cascade.rollout.tar import read_tar, tar_bytes

__all__ = ["Bundle", "build_bundle", "contents_of", "evidence_of", "load_bundle", "load_calibration"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A release and the calibration that it names.

    ``calibration`` is None where it names none, and where it cannot be used: then ``fault`` says why.
    """

    loaded: LoadedRelease
    source: Source
    calibration: Calibration | None
    fault: str | None = None


def load_bundle(path: Path, environment: Mapping[str, str]) -> Bundle:
    """Read a release and its calibration from a YAML file, a bundle's folder or a bundle's tar.

    Raises ConfigError for a release that cannot be used. An artefact that is missing, altered or unreadable
    is told in ``fault``: the release's safe mode can still serve.
    """
    source = open_source(path)
    loaded = release_from(source, environment)
    if loaded.release.calibration is None:
        return Bundle(loaded, source, None)
    try:
        return Bundle(loaded, source, load_calibration(source.artefacts, loaded.release.calibration))
    except ConfigError as error:
        return Bundle(loaded, source, None, str(error))


def load_calibration(artefacts: Artefacts, digest: str) -> Calibration:
    """Return the calibration of a digest. Raises ConfigError where it is missing, altered or cannot be read."""
    return Calibration(parse_artefact(artefacts.read(digest), digest), digest)


def evidence_of(loaded: LoadedRelease) -> dict[str, str]:
    """Return the digests of what a release names as evidence, by kind."""
    evidence = loaded.release.evidence
    named = {} if evidence is None else {"certificate": evidence.certificate, "report": evidence.report}
    return {kind: digest for kind, digest in named.items() if digest is not None}


def contents_of(source: Source, loaded: LoadedRelease) -> dict[str, bytes]:
    """Return the files of the bundle of a release, by name.

    Raises ConfigError where an artefact that it names is missing or altered, a calibration cannot be
    read, or evidence is no JSON.
    """
    contents = {RELEASE_NAME: source.text}
    if loaded.release.calibration is not None:
        load_calibration(source.artefacts, loaded.release.calibration)
    for digest in _named(loaded):
        data = source.artefacts.read(digest)
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ConfigError(f"artefact {digest}: not JSON") from None
        contents[f"{ARTEFACTS_FOLDER}/{artefact_name(digest)}"] = data
    return contents


def _named(loaded: LoadedRelease) -> Iterator[str]:
    if loaded.release.calibration is not None:
        yield loaded.release.calibration
    yield from evidence_of(loaded).values()


def build_bundle(path: Path, out: Path, environment: Mapping[str, str]) -> LoadedRelease:
    """Pack the release at ``path`` with the artefacts that it names, as a folder or, where ``out`` ends so, a ``.tar``.

    Its bytes follow from the input alone. A bundle is never changed: raises ConfigError where ``out`` is
    there and holds anything else. Variables need not be set.
    """
    source = open_source(path)
    loaded = release_from(source, offline(environment))
    contents = contents_of(source, loaded)
    there = _there(out)
    if there is None:
        try:
            _write(out, contents)
        except OSError as error:
            raise ConfigError(f"{out}: cannot be written: {type(error).__name__}") from None
    elif there != contents:
        raise ConfigError(f"{out}: it is there and holds something else; a bundle is never changed")
    return loaded


def _there(out: Path) -> dict[str, bytes] | None:
    """Return the files at ``out`` by name, None where there is nothing."""
    if out.suffix == ".tar":
        return read_tar(out) if out.exists() else None
    if not out.exists():
        return None
    if not out.is_dir():
        raise ConfigError(f"{out}: it is there and is no folder")
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()} or None


def _write(out: Path, contents: Mapping[str, bytes]) -> None:
    """Write aside, then move into place: what is there is whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".bundle-", dir=out.parent))
    try:
        if out.suffix == ".tar":
            packed = aside / out.name
            packed.write_bytes(tar_bytes(contents))
            packed.chmod(0o644)
            packed.replace(out)
        else:
            for name, data in contents.items():
                path = aside / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
            aside.chmod(0o755)
            os.replace(aside, out)  # noqa: PTH105 - onto an empty folder too
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(aside)
