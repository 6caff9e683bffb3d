"""Parsers of releases, of what they name, and of the files of a sidecar: settings, keys, certificates, state."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import orjson
import trustme
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cascade.calibration.artefact import artefact_bytes, parse_artefact
from cascade.calibration.certificate import parse_certificate
from cascade.capacity.report_shares import report_shares
from cascade.errors import ConfigError
from cascade.policy.tuning import parse_tuning, tuning_bytes
from cascade.rollout.history import Entry, Happened, KeptRelease, Remembered, StateFile
from cascade.rollout.load import load_release
from cascade.rollout.measured import _read as read_report
from cascade.rollout.shadow.gold import parse_gold
from cascade.rollout.signing import ReleaseKeys, check_signature, read_release_keys, signature_bytes
from cascade.rollout.sources.tags import Tags
from cascade.rollout.store import open_store
from cascade.rollout.strict_yaml import parse_mapping
from cascade.rollout.tar import parse_tar
from cascade.server.key_file import parse_keys
from cascade.server.settings import load_settings
from cascade.stages.certificates import KeyPair, Pem, expires_at, server_context
from tests.fuzz.holding import Parser, in_file, scratch
from tests.fuzz.mutation import CANARY
from tests.rollout.arrange import artefact_for, calibrated_data, certificate_for, report_for
from tests.rollout.bundles import packed, public_pem
from tests.tuning.made import tuning_of

__all__ = ["RELEASE_PARSERS"]

_POLICIES: Final = sorted((Path(__file__).parents[2] / "policies").glob("*.yaml"))
_URLS: Final = {"CASCADE_SMALL_URL": "http://small.test", "CASCADE_LARGE_URL": "http://large.test"}
_KEY: Final = Ed25519PrivateKey.from_private_bytes(b"0123456789abcdef0123456789abcdef")
_DIGEST: Final = f"sha256:{'1' * 64}"
_DATA: Final = calibrated_data(_DIGEST)


def _signed(data: bytes) -> str:
    public = _KEY.public_key()
    key_id = orjson.loads(signature_bytes(_DIGEST, _KEY))["key_id"]
    return check_signature(data, _DIGEST, ReleaseKeys({key_id: public}))


def _tls(path: Path) -> float:
    pair = KeyPair(Pem("certificate", path), Pem("key", path))
    server_context(pair, None)
    return expires_at(pair, for_server=True)


def _client_authority(path: Path) -> ssl.SSLContext:
    known = path.with_name("known.pem")
    known.write_bytes(_PEM.private_key_and_cert_chain_pem.bytes())
    return server_context(KeyPair(Pem("certificate", known), Pem("key", known)), Pem("client_ca", path))


def _goods(path: Path) -> list[str]:
    with open_store(path.parent, lambda: None) as store:
        return store.goods()


_AUTHORITY: Final = trustme.CA()
_PEM: Final = _AUTHORITY.issue_cert("127.0.0.1")
_SETTINGS: Final = yaml.safe_dump(
    {
        "port": 0,
        "release": "/r.yaml",
        "keys_seconds": 1.5,
        "cache": "memory",
        "release_variables": ["CASCADE_*"],
        "cache_redis_url": "redis://r.test",
    }
).encode()
_KEYS: Final = yaml.safe_dump(
    {
        "keys": [
            {
                "name": "a",
                "sha256": "a" * 64,
                "tenant": "t",
                "priority": 1,
                "expires": "2030-01-01",
                "rights": ["rerank"],
            }
        ]
    }
).encode()
_GOLD: Final = orjson.dumps(
    {
        "format": "cascade-gold/1",
        "k": 10,
        "queries": [
            {
                "text": CANARY,
                "documents": [{"text": CANARY, "gain": 1.0, "scores": {"bm25": 1.0}}, {"text": "b", "gain": 0}],
            }
        ],
    }
)
_STATE: Final = orjson.dumps(
    Remembered(
        stable=KeptRelease(release="r1", digest=_DIGEST, activated_at="2026-11-29T00:00:00+00:00"),
        seen=_DIGEST,
        history=(Entry(at="2026-11-29T00:00:00+00:00", what=Happened.SERVED, release="r1", digest=_DIGEST),),
    ).model_dump(mode="json")
)
_TAGS: Final = orjson.dumps({"a" * 64: {"etag": "e", "digest": _DIGEST}})
_REPORT: Final = report_for(_DATA)

_SHARES: Final = orjson.dumps(
    {
        "report": "cascade eval",
        "version": 2,
        "conditions": {"depth": None, "policy": {"release": "r1", "policy_digest": _DIGEST}, "k": 10},
        "policies": [
            {"name": "large", "large_share": 1.0, "large_pairs": 100.0},
            {"name": "policy", "large_share": 0.27, "large_pairs": 27.0},
        ],
        "levels": [{"name": "normal", "ndcg": 0.8, "large_share": 0.3, "small_pairs": 80.0}],
    }
)
_CONFIG: Final = (ConfigError,)

RELEASE_PARSERS: Final = (
    Parser(
        "release",
        (*(path.read_bytes() for path in _POLICIES), orjson.dumps(_DATA)),
        in_file("r.yaml", lambda path: load_release(path, _URLS)),
        _CONFIG,
        "bytes",
        names_keys=True,
    ),
    Parser(
        "release by nodes",
        (orjson.dumps(_DATA), *(orjson.dumps(yaml.safe_load(path.read_bytes())) for path in _POLICIES)),
        in_file("r.yaml", lambda path: load_release(path, _URLS)),
        _CONFIG,
        names_keys=True,
    ),
    Parser("YAML", tuple(path.read_bytes() for path in _POLICIES), parse_mapping, _CONFIG, "bytes", names_keys=True),
    Parser("bundle", (packed(scratch())[0],), parse_tar, _CONFIG, "bytes"),
    Parser("signature", (signature_bytes(_DIGEST, _KEY),), _signed, _CONFIG, names_keys=True),
    Parser("release keys", (public_pem(_KEY),), in_file("keys.pem", read_release_keys), _CONFIG, "bytes"),
    Parser(
        "certificate and key",
        (_PEM.private_key_and_cert_chain_pem.bytes(),),
        in_file("tls.pem", _tls),
        _CONFIG,
        "bytes",
    ),
    Parser("client authority", (_AUTHORITY.cert_pem.bytes(),), in_file("ca.pem", _client_authority), _CONFIG, "bytes"),
    Parser(
        "calibration",
        (artefact_bytes(artefact_for()),),
        lambda data: parse_artefact(data, "a.json"),
        _CONFIG,
        names_keys=True,
    ),
    Parser(
        "certificate of quality",
        (certificate_for(_DATA),),
        lambda data: parse_certificate(data, "c.json"),
        _CONFIG,
        names_keys=True,
    ),
    Parser("report named by a release", (_REPORT,), lambda data: read_report(data, _DIGEST), _CONFIG, names_keys=True),
    Parser(
        "report named by a command",
        (_SHARES,),
        lambda data: report_shares(parse_mapping(data), "r", _DIGEST, "normal"),
        _CONFIG,
        names_keys=True,
    ),
    Parser("judged queries of a rollout", (_GOLD,), parse_gold, _CONFIG),
    Parser("tuning", (tuning_bytes(tuning_of()),), lambda data: parse_tuning(data, "t.json"), _CONFIG, names_keys=True),
    Parser(
        "settings",
        (_SETTINGS,),
        in_file("s.yaml", lambda path: load_settings({}, file=path, environment={})),
        _CONFIG,
        "bytes",
        names_keys=True,
    ),
    Parser(
        "settings by nodes",
        (orjson.dumps(yaml.safe_load(_SETTINGS)),),
        in_file("s.yaml", lambda path: load_settings({}, file=path, environment={})),
        _CONFIG,
        names_keys=True,
    ),
    Parser("API keys", (_KEYS,), in_file("k.yaml", parse_keys), _CONFIG, "bytes", names_keys=True),
    Parser(
        "API keys by nodes",
        (orjson.dumps(yaml.safe_load(_KEYS)),),
        in_file("k.yaml", parse_keys),
        _CONFIG,
        names_keys=True,
    ),
    Parser(
        "state of a rollout", (_STATE,), in_file("rollout.json", lambda path: StateFile(path.parent).read()), _CONFIG
    ),
    Parser("good releases", (orjson.dumps([_DIGEST]),), in_file("good.json", _goods), ()),
    Parser("ETags", (_TAGS,), in_file("tags.json", lambda path: Tags(path.parent).of("http://a.test")), ()),
)
