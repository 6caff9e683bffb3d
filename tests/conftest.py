"""What holds for every test."""

from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("suite", deadline=None)
settings.register_profile(
    "long", deadline=None, max_examples=20_000
)  # for a night: --hypothesis-profile=long tests/fuzz
settings.load_profile("suite")
