"""``cascade release verify --probe``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cascade.testing.upstream import FakeTei, overlap
from tests.cli.conftest import Command
from tests.e2e.processes import listening
from tests.rollout.bundles import KEY, OTHER_KEY, key_file
from tests.scenario import release_data


def _paris_first(query: str, text: str) -> float:
    """Score as a reranker that knows the pairs of a probe."""
    return 5.0 if text.startswith("Paris is") else overlap(query, text)


def _written(folder: Path, url: str, model: str = "fake/reranker", **changes: Any) -> str:
    stage = {"adapter": "tei", "url": url, "model": model, "dtype": "float16", "engine": "tei/1.9"}
    path = folder / "release.yaml"
    path.write_text(
        yaml.safe_dump(release_data(stages={"small": dict(stage), "large": dict(stage)}, **changes)), encoding="utf-8"
    )
    return str(path)


def test_a_release_is_activated_for_nobody(command: Command, tmp_path: Path) -> None:
    """Its servers are asked, its smoke queries too; one that is answered otherwise is told by its step."""
    smoke = {"query": "kingfisher ant", "documents": ["bee", "an ant"]}
    with listening(FakeTei(score_of=_paris_first)) as url:
        path = _written(tmp_path, url, rollout={"smoke": [smoke | {"first": 1}]})
        done = command("release", "verify", path, "--probe")
        assert (done.status, done.out.splitlines()[-1].rpartition(": ")[2]) == (0, "passes")
        path = _written(tmp_path, url, rollout={"smoke": [smoke | {"first": 0}]})
        done = command("release", "verify", path, "--probe")
        other = command("release", "verify", _written(tmp_path, url, model="org/other"), "--probe")
    assert (done.status, other.status) == (1, 1)
    assert any(line.startswith("error: smoke: ") for line in done.out.splitlines())
    assert "error: fingerprint: small stage: model: declared org/other, the server says fake/reranker" in other.out
    assert "kingfisher" not in done.out + done.err


def test_known_pairs_in_the_wrong_order_refuse_also_where_warnings_pass(command: Command, tmp_path: Path) -> None:
    """As at a rollout that is lenient; `probe: off` asks none."""
    with listening(FakeTei(score_of=lambda query, text: 0.0)) as url:
        done = command("release", "verify", _written(tmp_path, url, probe="warn"), "--probe")
        off = command("release", "verify", _written(tmp_path, url, probe="off"), "--probe")
    assert (done.status, off.status) == (1, 0)
    assert "error: probe: small stage: constant" in done.out.splitlines()


def test_what_does_not_pass_is_not_started(command: Command, tmp_path: Path) -> None:
    """Without the signature that is asked for no server is called."""
    server = FakeTei()
    with listening(server) as url:
        path = _written(tmp_path, url)
        bundle = str(tmp_path / "bundle.tar")
        command("release", "build", path, "--out", bundle)
        done = command("release", "verify", bundle, "--probe", "--keys", str(key_file(tmp_path, KEY, OTHER_KEY)))
    assert (done.status, server.seen) == (1, [])
