"""``cascade config example``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.rollout.load import packaged_releases
from tests.cli.conftest import Command


@pytest.mark.parametrize("name", packaged_releases())
def test_an_example_is_a_release_that_validates(command: Command, tmp_path: Path, name: str) -> None:
    """What is printed can be kept as a file and served."""
    done = command("config", "example", name)
    path = tmp_path / "release.yaml"
    path.write_text(done.out, encoding="utf-8")
    variables = {"CASCADE_SMALL_URL": "http://a.test", "CASCADE_LARGE_URL": "http://b.test", "LARGE_KEY": "k"}
    assert command("config", "validate", "--release", str(path), variables=variables).status == 0


def test_an_unknown_example_is_refused_with_the_names_that_are_known(command: Command) -> None:
    """A misspelt name is exit 2 and one line."""
    done = command("config", "example", "tei")
    assert (done.status, done.err) == (2, f"cascade: no example 'tei'; there are {', '.join(packaged_releases())}\n")
    assert {"default", "observe", "tei-vllm"} <= set(packaged_releases())
