"""Stages and the engine: what they do, how long it takes, how long texts are, how batches are filled."""

from __future__ import annotations

from typing import Final

from dashboards.table import ONE_PROCESS, Dashboard, Panel, gauge, mean, quantiles, rate, share

__all__ = ["STAGES"]

_ROUNDS: Final = rate("cascade_rounds_total", "stage")
_WHOLE: Final = share(
    rate("cascade_document_windows_bucket", "stage", 'le="1.0"'),
    rate("cascade_document_windows_count", "stage"),
    "stage",
    whole="stage",
)
_TOKENS: Final = rate("cascade_tokens_total", "stage")
_PADDING: Final = rate("cascade_padding_tokens_total", "stage")
_ROWS: Final = {
    "Work": (
        Panel(
            "Pairs a second",
            "short",
            "Scored by each stage, without those from the cache.",
            {"{{stage}}": rate("cascade_pairs_total", "stage")},
        ),
        Panel(
            "Tokens a second",
            "short",
            "Read by each stage; estimated where its server does not tell.",
            {"{{stage}}": _TOKENS},
        ),
        Panel(
            "Rounds that failed",
            "percentunit",
            "Share of a stage's rounds, by outcome; stage_timeout are timeouts.",
            {
                "{{stage}} {{outcome}}": share(
                    rate("cascade_rounds_total", "stage, outcome", 'outcome!="ok"'),
                    _ROUNDS,
                    "stage, outcome",
                    whole="stage",
                )
            },
            (0.01,),
        ),
    ),
    "Time of a round": (
        Panel("Total", "s", "Of rounds of which anything was sent.", quantiles("cascade_stage_seconds", "stage")),
        Panel(
            "Queue",
            "s",
            "Waiting at the server, where it tells, or for this machine's cores. A round's longest call counts, so those of one round wait for each other.",
            quantiles("cascade_stage_queue_seconds", "stage"),
        ),
        Panel(
            "Compute",
            "s",
            "At the server, where it tells, or on this machine's cores.",
            quantiles("cascade_stage_compute_seconds", "stage"),
        ),
        Panel(
            "Wait for room",
            "s",
            "Here, among the texts in flight at a server; of rounds that had to wait.",
            quantiles("cascade_stage_room_seconds", "stage", (0.5, 0.95)),
        ),
        Panel(
            "Engine and server queues",
            "short",
            "Pairs that wait for this machine's cores or at a server, and calls that wait here for room.",
            {
                "pairs {{stage}}": gauge("cascade_upstream_waiting", "stage"),
                "calls {{stage}}": gauge("cascade_upstream_calls_waiting", "stage"),
            },
        ),
        Panel(
            "Texts in flight",
            "short",
            "At a server, and the most that may be now.",
            {
                "{{stage}}": gauge("cascade_upstream_in_flight_texts", "stage"),
                "limit {{stage}}": gauge("cascade_upstream_limit_texts", "stage"),
            },
        ),
        Panel(
            "Retries a second",
            "cps",
            "Failed calls that might be made again, by what became of that.",
            {"{{stage}} {{outcome}}": rate("cascade_retries_total", "stage, outcome")},
        ),
        Panel(
            "Load signals",
            "short",
            "1 where what a server told of its load is too old to count, or it tells none any more.",
            {
                "stale {{stage}}": gauge("cascade_upstream_signal_stale", "stage", "max"),
                "silent {{stage}}": gauge("cascade_upstream_signal_silent", "stage", "max"),
            },
            (1,),
        ),
        Panel(
            "Breaker changes a second",
            "cps",
            "Of a stage's breaker, by its new state.",
            {"{{stage}} {{state}}": rate("cascade_breaker_changes_total", "stage, state")},
        ),
    ),
    "Lengths": (
        Panel(
            "Tokens of a query",
            "short",
            "Measured, told or estimated: docs/metrics.md.",
            quantiles("cascade_query_tokens", "stage", (0.5, 0.95)),
        ),
        Panel(
            "Tokens of a pair",
            "short",
            "Whole, before a stage cuts it.",
            quantiles("cascade_pair_tokens", "stage", (0.5, 0.95, 0.99)),
        ),
        Panel(
            "Truncated and windowed",
            "percentunit",
            "Share of pairs not read in full, and of documents of embedded stages read in several windows.",
            {
                "truncated {{stage}}": share(
                    rate("cascade_truncated_pairs_total", "stage"),
                    rate("cascade_pairs_total", "stage"),
                    "stage",
                    whole="stage",
                ),
                "windowed {{stage}}": f"1 - {_WHOLE}",
            },
        ),
        Panel(
            "Windows",
            "short",
            "A document, on average; and a second beyond the first of each.",
            {
                "a document {{stage}}": mean("cascade_document_windows", "stage"),
                "more a second {{stage}}": rate("cascade_windows_total", "stage"),
            },
        ),
        Panel(
            "Documents left out a second",
            "cps",
            "Blank ones, and those that a server refused twice.",
            {"{{stage}} {{why}}": rate("cascade_excluded_documents_total", "stage, why")},
        ),
        Panel(
            "Lists",
            "cps",
            "Of a listwise stage: what had to be mended of its orders, and tokens that its server had in its prefix cache, a second.",
            {
                "mended": rate("cascade_order_repairs_total"),
                "prefix tokens": rate("cascade_prefix_tokens_total"),
            },
        ),
    ),
    "Batches of embedded stages": (
        Panel(
            "Inputs in a call",
            "short",
            "Pairs and windows in one call of the model. Quantiles are read within a bucket, of which the first ends at 1; the mean is exact.",
            {
                "mean {{stage}}": mean("cascade_batch_inputs", "stage"),
                **{
                    name: f"clamp_min({read}, 1)"
                    for name, read in quantiles("cascade_batch_inputs", "stage", (0.5, 0.95)).items()
                },
            },
        ),
        Panel(
            "Padding",
            "percentunit",
            "Share of the tokens computed that filled up batches.",
            {"{{stage}}": f"{_PADDING} / ({_PADDING} + {_TOKENS})"},
            (0.2,),
        ),
        Panel(
            "Padding of a call",
            "percentunit",
            "Share of one call's tokens.",
            quantiles("cascade_batch_padding_ratio", "stage", (0.5, 0.95)),
        ),
    ),
    "Score cache": (
        Panel(
            "Found",
            "percentunit",
            "Share of the documents of rounds whose score was kept, or being made by another round.",
            {
                "{{stage}} {{outcome}}": share(
                    rate("cascade_cache_lookups_total", "stage, outcome"),
                    rate("cascade_cache_lookups_total", "stage"),
                    "stage, outcome",
                    whole="stage",
                )
            },
        ),
        Panel("Kept in memory", "short", "Scores.", {"scores": gauge("cascade_cache_scores")}),
        Panel("Memory", "bytes", "That they count for.", {"bytes": gauge("cascade_cache_bytes")}),
        Panel(
            "Lost a second",
            "cps",
            "Scores kept no longer, for want of room or too old; and those not written to the Redis.",
            {
                "{{why}}": rate("cascade_cache_evictions_total", "why"),
                "not written: {{why}}": rate("cascade_cache_write_drops_total", "why"),
            },
        ),
        Panel(
            "Wait for another round",
            "s",
            "That scores the same pairs.",
            quantiles("cascade_cache_shared_wait_seconds", "", (0.5, 0.95)),
        ),
    ),
}

STAGES: Final = Dashboard(
    "stages",
    "cascade: stages and engine",
    "What each stage does, how long it takes, how long queries and pairs are, how batches and the cache are filled.",
    _ROWS,
    ONE_PROCESS,
)
