"""An operator rolls a signed bundle out from another folder, over real processes."""

from __future__ import annotations

from pathlib import Path

import httpx
import yaml

from cascade.rollout.bundle import build_bundle
from cascade.server.keys import hash_of
from tests.e2e.processes import cascade, listening, serving, write_yaml
from tests.e2e.rollouts import server, two_stages
from tests.rollout.bundles import KEY, key_file


def test_a_signed_bundle_is_handed_over_and_rolled_out(tmp_path: Path) -> None:
    """The command tells what it must show, starts it, and exits with 0; unsigned it is refused with 1."""
    with listening(server()) as small, listening(server()) as large:
        wide = {"late": 0.3, "errors": 0.3}
        paths = {}
        for name, key in (("first", KEY), ("second", KEY), ("third", None)):
            page = two_stages(name, small, large, wide, depth={"first": 50, "second": 12, "third": 6}[name])
            paths[name] = tmp_path / f"{name}.tar"
            build_bundle(write_yaml(tmp_path / f"{name}.yaml", page), paths[name], {}, key)
        keys = [{"name": "op", "sha256": hash_of("op-key").hex(), "rights": ["read", "operate"]}]
        settings = {
            "CASCADE__RELEASE_KEYS_FILE": str(key_file(tmp_path, KEY)),
            "CASCADE__ADMIN_KEYS_FILE": str(write_yaml(tmp_path / "keys.yaml", {"keys": keys})),
            "CASCADE__STATE_FOLDER": str(tmp_path / "state"),
        }
        with serving(tmp_path, "--release", str(paths["first"]), **settings) as process:
            asked = {"CASCADE_ADMIN_URL": process.admin, "OP_KEY": "op-key", "COLUMNS": "80"}
            refused = cascade("rollout", "start", str(paths["third"]), "--key-env", "OP_KEY", variables=asked)
            done = cascade(
                "rollout", "start", str(paths["second"]), "--lenient", "--key-env", "OP_KEY", variables=asked
            )
            told = httpx.get(f"{process.admin}/rollout", headers={"authorization": "op-key"}).json()
    assert refused.returncode == 1
    assert b"it is not signed" in refused.stderr
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0] == f"release second, {told['candidate']['digest']}"
    assert lines[1].startswith("steps: 40% -> 70% -> 100%; at least 0 s and 10 answers")
    assert lines[-1] == "running: second decides 40% of the traffic, first the rest"
    assert (told["state"], told["stable"]["release"], told["candidate"]["lenient"]) == ("running", "first", True)
    kept = yaml.safe_load((tmp_path / "state" / "rollout.json").read_bytes())
    assert kept["candidate"]["digest"] == told["candidate"]["digest"]
