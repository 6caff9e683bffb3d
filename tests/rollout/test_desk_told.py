"""What the command and the page are tested with is what the desk tells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade.stages.probe import Probe, Verdict
from cascade.testing.clock import run_virtual
from cascade.types import StageName
from tests.rollout.desk_fakes import Setup
from tests.server.rollout_desk import put_off, running


def _names(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a status, and of what each role is told by."""
    return {name: set(value) if isinstance(value, dict) else None for name, value in told.items()}


def test_the_status_has_the_names_that_its_readers_are_tested_with(tmp_path: Path) -> None:
    """After a refusal that is tried again, and with a candidate under way."""

    async def play() -> None:
        setup = Setup(tmp_path)
        loop = asyncio.create_task(setup.desk.run())
        away = Probe(Verdict.FAILED, "connect", 1.0)
        stored = setup.write("r2", {"probes": [{StageName.SMALL: away}]}, probe="enforce")
        setup.source.say(stored)
        await asyncio.sleep(20)
        assert _names(setup.desk.status()) == _names(put_off())
        setup.options[stored.digest] = {}
        await asyncio.sleep(60)
        told, readers = _names(setup.desk.status()), _names(running())
        assert {role: told[role] for role in ("candidate", "desired")} == {
            role: readers[role] for role in ("candidate", "desired")
        }
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()

    run_virtual(play())
