"""Metrics of the work of stages: how long queries and pairs are, in the form that ``cascade capacity`` reads, and batches."""

from __future__ import annotations

from typing import Final

from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declaring
from cascade.telemetry.work import Counted, Ran, ReadPairs, WorkEvents
from cascade.types import SCORING, StageName

__all__ = ["WorkMetrics"]

_QUERY_TOKENS: Final = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
_PAIR_TOKENS: Final = (
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384, 32768,
)  # fmt: skip
"""The usual lengths that models read are among them, so that what is cut is counted exactly."""
_INPUTS: Final = (1, 2, 3, 4, 6, 8, 16)
_BATCH: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_SHARES: Final = (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


class WorkMetrics:
    """Take in what stages tell of their work."""

    def __init__(self, declare: Declaring) -> None:
        self._query_tokens = declare.bulk_histogram(
            STABLE,
            "cascade_query_tokens",
            "Tokens of a query, once a round: measured by embedded stages; told, an estimate scaled to what the server told of the "
            "round; or estimated",
            ["stage", "counted"],
            buckets=_QUERY_TOKENS,
        )
        self._pair_tokens = declare.bulk_histogram(
            STABLE,
            "cascade_pair_tokens",
            "Tokens of a whole pair that a stage was asked to score, before it is cut; counted as cascade_query_tokens is",
            ["stage", "counted"],
            buckets=_PAIR_TOKENS,
        )
        for histogram in (self._query_tokens, self._pair_tokens):
            for stage in SCORING:
                for counted in Counted:
                    histogram.show(stage, counted)
        self._inputs = declare.bulk_histogram(
            EXPERIMENTAL,
            "cascade_document_windows",
            "Windows that a document was read in, by embedded stages; 1 is the whole or its beginning",
            ["stage"],
            buckets=_INPUTS,
        )
        self._batch = declare.histograms(
            EXPERIMENTAL,
            "cascade_batch_inputs",
            "Pairs and windows in one call of an embedded model",
            "stage",
            SCORING,
            buckets=_BATCH,
        )
        self._padding = declare.histograms(
            EXPERIMENTAL,
            "cascade_batch_padding_ratio",
            "Share of the tokens of one call of an embedded model that filled it up",
            "stage",
            SCORING,
            buckets=_SHARES,
        )
        for stage in SCORING:
            self._inputs.show(stage)

    def events(self, stage: StageName) -> WorkEvents:
        """Return what a stage tells of its work to."""

        def read(told: ReadPairs) -> None:
            if told.query_tokens is not None:
                self._query_tokens.add((told.query_tokens,), stage, told.counted)
            self._pair_tokens.add(told.pair_tokens, stage, told.counted)
            if told.inputs:
                self._inputs.add(told.inputs, stage)

        def ran(told: Ran) -> None:
            self._batch[stage].observe(told.inputs)
            self._padding[stage].observe(told.padding / ((told.tokens + told.padding) or 1))

        return WorkEvents(read, ran)
