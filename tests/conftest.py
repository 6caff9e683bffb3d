"""What holds for every test."""

import gc

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("suite", deadline=None)
settings.register_profile(
    "long", deadline=None, max_examples=20_000
)  # for a night: --hypothesis-profile=long tests/fuzz
settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="module")
def _collector_passes_over_what_was_loaded() -> None:
    """Full collections look at what tests made, not at half a million objects of imports and collected tests.

    They took a fifth of the suite's time. A test that serves in this process ends that, so each module sees to it.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
