"""Fitting where its libraries are not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

from cascade.errors import ConfigError


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn any module of the room says which extra to install."""
    for name in [name for name in sys.modules if name == "cascade.fit" or name.startswith("cascade.fit.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)  # what makes an import fail
    with pytest.raises(ConfigError, match=r"cascade-rerank\[fit\]"):
        importlib.import_module("cascade.fit.calibrate")
