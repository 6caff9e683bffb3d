"""Every YAML example of a page is taken by what reads such a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cascade.capacity.throughput import throughputs_of
from cascade.capacity.workload import traffic_of
from cascade.policy.release import Release, parse_release
from cascade.server.key_file import parse_keys
from cascade.server.settings import Settings, load_settings
from tests.docs.pages import PAGES, ROOT, blocks
from tests.scenario import release_data

_HELM: Final = ROOT / "docs" / "deploy.md"
"""Its example is Helm's: held by the chart's schema where Helm is (tests/deploy)."""
_DIGEST: Final = "sha256:" + "0" * 64
_VARIABLE: Final = re.compile(r"\$\{\w+\}")
_EXAMPLES: Final = [
    pytest.param(block.text, id=f"{page.name}-{number}")
    for page in PAGES
    if page != _HELM
    for number, block in enumerate(one for one in blocks(page) if one.language == "yaml")
]


@pytest.mark.parametrize("text", _EXAMPLES)
def test_every_example_is_read_as_what_it_is(tmp_path: Path, text: str) -> None:
    """By its keys it is a release or a part of one, settings, keys, a workload or rates; and it breaks no rule of that."""
    written = tmp_path / "example.yaml"
    written.write_text(_VARIABLE.sub("http://stage.example", text.replace("sha256:…", _DIGEST)), encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(written.read_text(encoding="utf-8"))
    if data.keys() <= Release.model_fields.keys():
        parse_release(data if "release" in data else _within(release_data(), data))
    elif data.keys() <= Settings.model_fields.keys():
        load_settings({}, file=written, environment={})
    elif data.keys() == {"keys"}:
        assert len(parse_keys(written)) == len(data["keys"])
    elif "arrivals" in data:
        traffic_of(data, "example")
    else:
        throughputs_of(data)


def _within(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return a release with the keys of a part of one; a stage that says its adapter is whole, another is changed."""
    kept = {} if "adapter" in part else whole
    inner = {key: _within(kept[key], value) for key, value in part.items() if isinstance(value, dict) and key in kept}
    plain = isinstance(part.get("kind"), str)  # another kind of the same key has keys of its own
    return dict(part) if plain else {**kept, **part, **inner}


def test_examples_are_found() -> None:
    """What holds pages is not blind: there are examples of a release, of keys and of a workload."""
    assert len(_EXAMPLES) >= 7


def test_the_tutorial_s_files_are_read(tmp_path: Path) -> None:
    """Its release is one, and its settings name it."""
    folder = ROOT / "evals" / "tutorial"
    release = parse_release(yaml.safe_load((folder / "observe.yaml").read_text(encoding="utf-8")))
    settings = load_settings({}, file=folder / "settings.yaml", environment={})
    assert (release.mode, settings.release) == ("observe", folder / "observe.yaml")
