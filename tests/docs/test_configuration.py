"""The page of the configuration names defaults as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from cascade.errors import ConfigError
from cascade.policy.release import parse_release
from cascade.server.settings import Settings, load_settings
from tests.docs.pages import ROOT
from tests.scenario import release_data

_PAGE: Final = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
_ROW: Final = re.compile(r"\| `(\w+)` \| [^|]* \| (none|`[^`|]+`) \|")
"""A key and its default; what is required, or has keys of its own, is none."""


def _defaults(heading: str) -> dict[str, str]:
    """Return the defaults of the first table below a heading, by key, in YAML."""
    section = _PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    found = {key: told.strip("`") for key, told in _ROW.findall(section)}
    return {key: "null" if told == "none" else told for key, told in found.items()}


def test_settings_may_be_written_with_their_defaults(tmp_path: Path) -> None:
    """All of them in a file are as none of them; what has no default is null."""
    told = _defaults("## Settings")
    assert {"trace_keep", "release_variables", "state_folder"} <= told.keys()
    file = tmp_path / "cascade.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in told.items()), encoding="utf-8")
    assert load_settings({}, file=file, environment={}) == Settings()


def test_null_in_place_of_a_list_is_refused_as_no_list() -> None:
    """What holds it here is no word of the file's."""
    with pytest.raises(ConfigError, match=r"^rollout\.smoke: Input should be a valid list$"):
        parse_release(release_data(rollout={"smoke": None}))


@pytest.mark.parametrize(
    ("heading", "key", "some"),
    [
        ("## A release", None, {"levels", "evidence", "mode"}),
        ("### limits", "limits", {"tenants", "max_request_tokens"}),
        ("### rollout", "rollout", {"smoke", "gold", "steps"}),
    ],
)
def test_a_release_may_be_written_with_its_defaults(heading: str, key: str | None, some: set[str]) -> None:
    """It is the release that names none of them."""
    told = {name: yaml.safe_load(value) for name, value in _defaults(heading).items()}
    assert some <= told.keys()
    written = told if key is None else {key: told}
    assert parse_release(release_data() | written) == parse_release(release_data())
