"""Hold weights against the first ones before they may be chosen: the checks of ``cascade parity``."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Any, Final

from cascade.errors import ConfigError
from cascade.parity.assemble import Question
from cascade.parity.costs import resident_bytes
from cascade.parity.gather import Gathered
from cascade.parity.lists import CandidateList
from cascade.parity.live import Live
from cascade.parity.run import Surroundings, run_parity
from cascade.parity.slices import labels_of
from cascade.parity.spaces import Spaces
from cascade.parity.token_ids import token_reader
from cascade.parity.tolerances import Tolerances, checks
from cascade.policy.release import OnePair, OnnxStage
from cascade.stages.engine.workers import worker_pool
from cascade.stages.onnx import OnnxReranker
from cascade.tuning.measuring import UnlikeFirst

__all__ = ["limits_of", "unlike_first"]

_QUERIES: Final = 50
_DEPTH: Final = 30


def limits_of(written: str | None) -> Tolerances:
    """Return limits as ``max_error=1,min_kendall=0.9`` has them, the others those of ``cascade parity``. Raises ConfigError."""
    names = [field.name for field in fields(Tolerances)]
    found: dict[str, Any] = {}
    for part in (written or "").split(",") if written is not None else ():
        name, _, value = part.strip().partition("=")
        number = _number(value)
        if name not in names or name in found or number is None:
            raise ConfigError(
                f"--limits: write NAME=NUMBER, each name once, split by commas; names are {', '.join(names)}"
            )
        found[name] = number
    return replace(Tolerances(), **found)


def _number(written: str) -> float | None:
    try:
        number = float(written)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def unlike_first(
    specs: Mapping[str, OnnxStage], pairs: Mapping[str, Sequence[str]] | None, limits: Tolerances, seed: int
) -> UnlikeFirst:
    """Return what compares the weights of a name with the first: on ``pairs``, else on the built-in texts.

    Both score one pair a call, which is exact for every model, and are held to ``limits``.
    """
    first = next(iter(specs.values()))
    gathered = None if pairs is None else _gathered(pairs, first.max_length)

    async def compare(name: str) -> str | None:
        with worker_pool(None) as workers:
            sides = [
                Live(OnnxReranker(what, _exact(spec), workers, time.monotonic), token_reader(spec))
                for what, spec in (("REF", first), ("CAND", specs[name]))
            ]
            try:
                question = Question(max_length=first.max_length, seed=seed, allow_few=True)
                spaces = Spaces(first.score_space, first.score_space)
                around = Surroundings(time.monotonic, resident_bytes)
                found = await run_parity(sides[0], sides[1], gathered, spaces, question, around)
            except ConfigError as error:
                return str(error)
            finally:
                await asyncio.gather(*(side.stage.aclose() for side in sides), return_exceptions=True)
        failed = [check for check in checks(found, limits) if check.passed is False]
        told = "; ".join(
            check.name if check.value is None else f"{check.name} {check.value:.4g} against {check.limit:.4g}"
            for check in failed[:5]
        )
        return f"outside parity: {told}" if failed else None

    return compare


def _exact(spec: OnnxStage) -> OnnxStage:
    return spec.model_copy(update={"batching": OnePair(mode="one-pair")})


def _gathered(pairs: Mapping[str, Sequence[str]], window: int) -> Gathered:
    lists = [
        CandidateList(
            id=f"pairs:{number}",
            doc_ids=tuple(map(str, range(len(documents[:_DEPTH])))),
            query=query,
            documents=tuple(documents[:_DEPTH]),
            labels=labels_of(query, tuple(documents[:_DEPTH]), window),
        )
        for number, (query, documents) in enumerate(islice(pairs.items(), _QUERIES))
    ]
    return Gathered(tuple(lists), of_queries=len(lists))
