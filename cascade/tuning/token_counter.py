"""Count the tokens of texts as a stage's tokenizer does."""

from __future__ import annotations

from collections.abc import Callable

from cascade.errors import ConfigError, lacks_extra
from cascade.policy.release import Weights
from cascade.stages.weights import find_model

__all__ = ["token_counter"]


def token_counter(weights: Weights) -> Callable[[str], int]:
    """Return what counts the tokens of a text, without special ones, padding or a limit. Raises ConfigError."""
    try:
        import tokenizers
    except ImportError:
        raise lacks_extra("embedded stages need", "embedded") from None
    path = find_model(weights).tokenizer
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises an undeclared type of its own
        raise ConfigError(f"weights: {path} cannot be loaded: {type(error).__name__}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
