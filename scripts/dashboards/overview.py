"""The first look: are requests answered, in time, as planned, and what is in the way."""

from __future__ import annotations

from typing import Final

from dashboards.table import ONE_PROCESS, Dashboard, Panel, gauge, quantiles, rate, share

__all__ = ["OVERVIEW"]

_ANSWERS: Final = rate("cascade_requests_total")

_ROWS: Final = {
    "Answers": (
        Panel(
            "Answers a second",
            "reqps",
            "By the stage that placed the first result; retrieval is first-stage order.",
            {"{{stage}}": rate("cascade_requests_total", "stage")},
        ),
        Panel(
            "Time of a request",
            "s",
            "From its head to its answer, waits included.",
            quantiles("cascade_request_seconds"),
        ),
        Panel(
            "Degraded answers",
            "percentunit",
            "Share of answers that are not what the release planned, by reason.",
            {"{{reason}}": share(rate("cascade_degraded_total", "reason"), _ANSWERS, "reason")},
            (0.01,),
        ),
        Panel(
            "Fallback and late answers",
            "percentunit",
            "Answers in first-stage order, and those with a millisecond or less left.",
            {
                "first-stage order": share(rate("cascade_requests_total", "", 'stage="retrieval"'), _ANSWERS),
                "late": share(
                    rate("cascade_left_seconds_bucket", "", 'le="0.001"'), rate("cascade_left_seconds_count")
                ),
            },
            (0.05,),
        ),
        Panel(
            "Time left at the end",
            "s",
            "Before the deadline: what the slowest have, and the half.",
            quantiles("cascade_left_seconds", "", (0.01, 0.05, 0.5)),
        ),
        Panel(
            "The sidecar's own time",
            "s",
            "Of a request, while no stage was awaited.",
            quantiles("cascade_own_seconds", "", (0.5, 0.99)),
        ),
    ),
    "Turned away": (
        Panel(
            "Refused requests a second",
            "reqps",
            "By status; a client that went away has none.",
            {"{{status}}": rate("cascade_rejected_total", "status"), "client gone": rate("cascade_abandoned_total")},
        ),
        Panel(
            "Without a key a second",
            "reqps",
            "Requests that were not let in, by cause.",
            {"{{why}}": rate("cascade_denied_total", "why")},
        ),
        Panel(
            "Admission a second",
            "reqps",
            "What became of requests that asked for a seat.",
            {"{{verdict}}": rate("cascade_admission_total", "verdict")},
        ),
    ),
    "Queue and level": (
        Panel(
            "Queue",
            "short",
            "Requests that wait for their turn, and those under way.",
            {"waiting {{lane}}": gauge("cascade_queue_length", "lane"), "under way": gauge("cascade_in_flight")},
        ),
        Panel(
            "Wait for a turn",
            "s",
            "Of requests that had to wait.",
            quantiles("cascade_queue_seconds", "lane", (0.5, 0.95)),
        ),
        Panel(
            "Load level",
            "short",
            "The highest of the processes chosen; 0 is the release as it stands.",
            {"level": gauge("cascade_level", "", "max"), "pinned": gauge("cascade_level_pinned", "", "max")},
            (1,),
        ),
        Panel(
            "Level changes a second",
            "cps",
            "By what they were for.",
            {"{{why}}": rate("cascade_level_steps_total", "why")},
        ),
        Panel(
            "Answers by level",
            "percentunit",
            "Share of answers that each level decided.",
            {
                "level {{level}}": share(
                    rate("cascade_level_answers_total", "level"), rate("cascade_level_answers_total"), "level"
                )
            },
        ),
        Panel(
            "Breakers",
            "short",
            "The worst of the processes chosen: 0 closed, 1 half open, 2 open. A stage's server, and the cache's Redis.",
            {
                "{{stage}}": gauge("cascade_breaker_state", "stage", "max"),
                "cache": gauge("cascade_cache_breaker_open", "", "max"),
            },
            (1,),
        ),
    ),
    "What somebody must act on": (
        Panel(
            "Faults and losses a second",
            "cps",
            "Faults of our own, records and spans that were not kept.",
            {
                "internal faults": rate("cascade_internal_faults_total"),
                "records dropped: {{reason}}": rate("cascade_records_dropped_total", "reason"),
                "spans dropped: {{reason}}": rate("cascade_spans_dropped_total", "reason"),
            },
        ),
        Panel(
            "Servers and calibration",
            "short",
            "1 where a stage's server cannot serve it, the safe mode decides, or evidence does not hold.",
            {
                "unusable {{stage}}": gauge("cascade_stage_unusable", "stage", "max"),
                "safe mode": gauge("cascade_safe_mode", "", "max"),
                "{{kind}} does not hold": gauge("cascade_evidence_mismatch", "kind", "max"),
            },
            (1,),
        ),
        Panel("Connections", "short", "By listener.", {"{{listener}}": gauge("cascade_connections", "listener")}),
    ),
}

OVERVIEW: Final = Dashboard(
    "overview",
    "cascade: overview",
    "Whether requests are answered in time and as the release plans, and what is in the way.",
    _ROWS,
    ONE_PROCESS,
)
