"""A release with what it names: loaded to serve, or packed so that it can be carried and kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from cascade.calibration.artefact import parse_artefact
from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.rollout.artefacts import ARTEFACTS_FOLDER, LARGEST_ARTEFACT, Artefacts, artefact_name, read_bounded
from cascade.rollout.load import LoadedRelease, offline, release_from
from cascade.rollout.names import RELEASE_NAME, SIGNATURE_NAME, is_of_bundle
from cascade.rollout.signing import ReleaseKeys, check_signature, signature_bytes
from cascade.rollout.source import Source, SourceKind, open_source
from cascade.rollout.tar import read_tar, tar_bytes
from cascade.rollout.tuned import Tunings, named_tunings, tuned_release, tunings_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "Bundle",
    "build_bundle",
    "check_signed",
    "contents_of",
    "evidence_of",
    "load_bundle",
    "load_calibration",
    "sign_bundle",
]


_OTHER: Final = "it is there and holds something else; a bundle is never changed"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A release, the calibration that it names, and the tunings of its stages, whose numbers its release has.

    ``calibration`` is None where it names none, and where it cannot be used: then ``fault`` says why. ``signed_by``
    is the id of the key that signed it, None where nobody asked.
    """

    loaded: LoadedRelease
    source: Source
    calibration: Calibration | None
    fault: str | None = None
    signed_by: str | None = None
    tunings: Tunings = field(default_factory=Tunings)


def load_bundle(path: Path, environment: Mapping[str, str], keys: ReleaseKeys | None = None) -> Bundle:
    """Read a release and its calibration from a YAML file, a bundle's folder or a bundle's tar.

    Raises ConfigError for a release that cannot be used, and with ``keys`` for one that none of them signed or of
    which anything was altered. Without them, an artefact that is missing, altered or unreadable is told in ``fault``:
    the release's safe mode can still serve; of a tuning in its faults: the release's own numbers serve.
    """
    source = open_source(path)
    loaded = release_from(source, environment)
    try:
        signed_by = None if keys is None else check_signed(source, loaded, keys)
    except ConfigError as error:
        raise ConfigError(f"release {path}: {error}") from None
    tunings = tunings_of(loaded.release, source.artefacts)
    loaded = replace(loaded, release=tuned_release(loaded.release, tunings))
    if loaded.release.calibration is None:
        return Bundle(loaded, source, None, None, signed_by, tunings)
    try:
        calibration = load_calibration(source.artefacts, loaded.release.calibration)
    except ConfigError as error:
        return Bundle(loaded, source, None, str(error), signed_by, tunings)
    return Bundle(loaded, source, calibration, None, signed_by, tunings)


def check_signed(source: Source, loaded: LoadedRelease, keys: ReleaseKeys) -> str:
    """Return the id of the key that signed a bundle. Raises ConfigError where none of ``keys`` did.

    A signature is of the release's digest. That holds the digests of all that the release names, so a bundle of which
    an artefact is missing or altered is refused too.
    """
    if source.kind is SourceKind.FILE:
        raise ConfigError(
            "a YAML file cannot be signed, and release keys are set: make a bundle of it with "
            "cascade release build, and sign that with cascade release sign"
        )
    signed_by = check_signature(source.signature, loaded.digest, keys)
    contents_of(source, loaded)
    return signed_by


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

    Raises ConfigError where an artefact that it names is missing or altered, a calibration or a tuning cannot be
    read, or evidence or judged queries are no JSON.
    """
    contents = {RELEASE_NAME: source.text}
    if source.signature is not None:
        contents[SIGNATURE_NAME] = source.signature
    if loaded.release.calibration is not None:
        load_calibration(source.artefacts, loaded.release.calibration)
    if faults := tunings_of(loaded.release, source.artefacts).faults:
        raise ConfigError("; ".join(faults.values()))
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
    yield from named_tunings(loaded.release).values()
    yield from evidence_of(loaded).values()
    if loaded.release.rollout.gold is not None:
        yield loaded.release.rollout.gold


def build_bundle(
    path: Path, out: Path, environment: Mapping[str, str], key: Ed25519PrivateKey | None = None
) -> LoadedRelease:
    """Pack the release at ``path`` with the artefacts that it names, as a folder or, where ``out`` ends so, a ``.tar``.

    Its bytes follow from the input alone. With ``key`` it is signed. A bundle is never changed: raises ConfigError
    where ``out`` is there and holds anything else. Variables need not be set.
    """
    source = open_source(path)
    loaded = release_from(source, offline(environment))
    contents = contents_of(source, loaded)
    if key is not None:
        contents[SIGNATURE_NAME] = signature_bytes(loaded.digest, key)
    there = _there(out)
    if there is None:
        try:
            _write(out, contents)
        except OSError as error:
            raise ConfigError(f"{out}: cannot be written: {type(error).__name__}") from None
    elif there != contents:
        raise ConfigError(f"{out}: {_OTHER}")
    return loaded


def sign_bundle(path: Path, out: Path, environment: Mapping[str, str], key: Ed25519PrivateKey) -> LoadedRelease:
    """Write the bundle at ``path`` to ``out`` with a signature, in place of any that it has. Raises ConfigError."""
    if open_source(path).kind is SourceKind.FILE:
        raise ConfigError(f"release {path}: a YAML file is no bundle; make one with cascade release build")
    return build_bundle(path, out, environment, key)


def _there(out: Path) -> dict[str, bytes] | None:
    """Return the files at ``out`` by name, None where there is nothing. Of a folder that is no bundle nothing is read."""
    if out.suffix == ".tar":
        return read_tar(out) if out.exists() else None
    if not out.exists():
        return None
    if not out.is_dir():
        raise ConfigError(f"{out}: it is there and is no folder")
    try:
        paths = [*out.iterdir(), *(out / ARTEFACTS_FOLDER).glob("*")]
    except OSError as error:
        raise ConfigError(f"{out}: cannot be read: {type(error).__name__}") from None
    found = {path.relative_to(out).as_posix(): path for path in paths if path != out / ARTEFACTS_FOLDER}
    if not all(map(is_of_bundle, found)):
        raise ConfigError(f"{out}: {_OTHER}")
    return {name: read_bounded(path, LARGEST_ARTEFACT, plain=True) for name, path in found.items()} or None


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
