"""What is decided and how it moves rankings, whether the calibration still fits, and where a rollout stands."""

from __future__ import annotations

from typing import Final

from dashboards.table import ONE_PROCESS, Dashboard, Panel, gauge, mean, quantiles, rate, share

__all__ = ["RANKING"]

_ARMS: Final = rate("cascade_arm_requests_total", "arm")

_ROWS: Final = {
    "Escalation": (
        Panel(
            "Decisions",
            "percentunit",
            "Share of answers by what escalation decided: accept, cluster, query, direct, static; safe is the safe mode.",
            {"{{action}}": share(rate("cascade_actions_total", "action"), rate("cascade_actions_total"), "action")},
        ),
        Panel(
            "Escalated candidates",
            "short",
            "Of a request.",
            {"mean": mean("cascade_escalated"), **quantiles("cascade_escalated", "", (0.5, 0.95))},
        ),
        Panel(
            "Large pairs",
            "percentunit",
            "Pairs that the large stage was asked for, of all candidates, by arm: what escalation costs.",
            {
                "{{arm}}": share(
                    rate("cascade_arm_large_pairs_total", "arm"),
                    rate("cascade_arm_candidates_total", "arm"),
                    "arm",
                    whole="arm",
                )
            },
        ),
        Panel(
            "Depth and candidates",
            "short",
            "Of a request: what came, and what the small stage scores of it.",
            {
                **quantiles("cascade_candidates", "", (0.5, 0.95), "candidates "),
                "depth": mean("cascade_depth"),
            },
        ),
    ),
    "Rank movement": (
        Panel(
            "Overlap at 10",
            "percentunit",
            "Share of the small stage's first ten that the large stage leaves among the first ten, on average. Near 1 escalation changes "
            "little; a jump says that one of the two models is another than before.",
            {"mean": mean("cascade_rank_overlap_ratio"), **quantiles("cascade_rank_overlap_ratio", "", (0.1, 0.5))},
        ),
        Panel(
            "Displacement at 10",
            "short",
            "Places that the small stage's first ten are moved by, on average.",
            {
                "mean": mean("cascade_rank_displacement_places"),
                **quantiles("cascade_rank_displacement_places", "", (0.5, 0.95)),
            },
        ),
    ),
    "Calibration": (
        Panel(
            "Drift",
            "short",
            "Population stability index of the last answers against the queries that the calibration was fitted on, the highest of the "
            "processes chosen: 0.1 is watched and 0.25 acted upon by custom. Nothing where the calibration was fitted without a reference.",
            {"{{of}}": gauge("cascade_calibration_drift_psi", "of", "max")},
            (0.1, 0.25),
        ),
        Panel(
            "Answers compared",
            "short",
            "That the index is of, 1000 at most in each process; below 200 there is no index.",
            {"{{of}}": gauge("cascade_calibration_drift_answers", "of")},
        ),
        Panel(
            "Margin",
            "percentunit",
            "Calibrated margin of answers: how sure the estimate is of the last place.",
            quantiles("cascade_margin", "", (0.1, 0.5, 0.9)),
        ),
        Panel(
            "Safe mode",
            "short",
            "1 where the calibration does not hold and the safe mode decides.",
            {"safe mode": gauge("cascade_safe_mode", "", "max")},
            (1,),
        ),
    ),
    "Rollout": (
        Panel(
            "Releases",
            "short",
            "Processes by the release that they have, and its arm.",
            {"{{release}} {{arm}}": gauge("cascade_release_info", "release, arm", "count")},
        ),
        Panel(
            "Step and share",
            "short",
            "The highest of the processes chosen; step -1 is none.",
            {
                "step": gauge("cascade_rollout_step", "", "max"),
                "share of {{arm}}": gauge("cascade_arm_share", "arm", "max"),
            },
            least=-1,
        ),
        Panel(
            "Guardrails",
            "short",
            "The worst of the processes chosen: -1 fails, 0 inconclusive, 1 passes. Nothing where nothing is tried.",
            {"{{name}}": gauge("cascade_guardrail", "name", "min")},
            least=-1,
        ),
        Panel("Requests by arm", "reqps", "Decided.", {"{{arm}}": _ARMS}),
        Panel(
            "Late, degraded and refused by arm",
            "percentunit",
            "Share of what an arm decided.",
            {
                "late {{arm}}": share(rate("cascade_arm_late_total", "arm"), _ARMS, "arm", whole="arm"),
                "degraded {{arm}}": share(rate("cascade_arm_degraded_total", "arm"), _ARMS, "arm", whole="arm"),
                "refused {{arm}}": share(
                    rate("cascade_arm_requests_total", "arm", 'outcome="refused"'), _ARMS, "arm", whole="arm"
                ),
            },
            (0.01,),
        ),
        Panel("Time by arm", "s", "Of a request.", quantiles("cascade_arm_duration_seconds", "arm", (0.5, 0.95, 0.99))),
        Panel(
            "Shadow a second",
            "cps",
            "Requests offered to the shadow of a candidate, by what became of them.",
            {"{{outcome}}": rate("cascade_shadow_total", "outcome")},
        ),
        Panel(
            "Activations and ends a second",
            "cps",
            "Activations by outcome, and rollouts that ended.",
            {
                "activation {{outcome}}": rate("cascade_activations_total", "outcome"),
                "rollout {{outcome}}": rate("cascade_rollouts_total", "outcome"),
            },
        ),
        Panel(
            "Beside answers, in mode observe",
            "cps",
            "Rounds of the small stage, by outcome, and records written.",
            {"{{outcome}}": rate("cascade_beside_total", "outcome"), "records": rate("cascade_records_total")},
        ),
    ),
}

RANKING: Final = Dashboard(
    "ranking",
    "cascade: rollout and drift",
    "What escalation decides and how it moves rankings, whether the calibration still fits the traffic, where a rollout stands.",
    _ROWS,
    ONE_PROCESS,
)
