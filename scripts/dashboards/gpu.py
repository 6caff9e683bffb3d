"""GPUs of the rerankers, as NVIDIA's exporter of DCGM tells, beside what the sidecars send them."""

from __future__ import annotations

from typing import Final

from dashboards.table import ONE_PROCESS, Dashboard, Panel, Variable, quantiles, rate

__all__ = ["GPU"]

_CHOSEN: Final = '{Hostname=~"$host", gpu=~"$gpu"}'
_EACH: Final = "{{Hostname}} {{gpu}}"


def _told(name: str) -> str:
    """Return a gauge of the exporter: the highest, where a GPU is told of once for each pod that has it."""
    return f"max by (Hostname, gpu) ({name}{_CHOSEN})"


_USED: Final = _told("DCGM_FI_DEV_FB_USED")
_FREE: Final = _told("DCGM_FI_DEV_FB_FREE")

_ROWS: Final = {
    "Use": (
        Panel(
            "GPU use",
            "percent",
            "Share of time in which anything ran. High use is not high throughput: one small batch after the other fills it too.",
            {_EACH: _told("DCGM_FI_DEV_GPU_UTIL")},
        ),
        Panel(
            "Memory in use",
            "percentunit",
            "Share of the frame buffer. Servers that take it all at their start show a line.",
            {_EACH: f"{_USED} / ({_USED} + {_FREE})"},
            (0.95,),
        ),
        Panel("Memory", "mbytes", "Used of the frame buffer, in MiB.", {_EACH: _USED}),
        Panel(
            "Memory traffic",
            "percent",
            "Share of time in which memory was read or written.",
            {_EACH: _told("DCGM_FI_DEV_MEM_COPY_UTIL")},
        ),
    ),
    "Limits of the device": (
        Panel("Power", "watt", "Drawn.", {_EACH: _told("DCGM_FI_DEV_POWER_USAGE")}),
        Panel("Temperature", "celsius", "Of the GPU.", {_EACH: _told("DCGM_FI_DEV_GPU_TEMP")}),
        Panel(
            "Clock",
            "short",
            "Of the multiprocessors, in MHz: lower under load where power or heat bound it.",
            {_EACH: _told("DCGM_FI_DEV_SM_CLOCK")},
        ),
        Panel(
            "Last XID error",
            "short",
            "Its number, 0 where there was none. NVIDIA's list tells which want a restart.",
            {_EACH: _told("DCGM_FI_DEV_XID_ERRORS")},
        ),
    ),
    "What the sidecars send": (
        Panel("Pairs a second", "short", "By stage.", {"{{stage}}": rate("cascade_pairs_total", "stage")}),
        Panel("Tokens a second", "short", "By stage.", {"{{stage}}": rate("cascade_tokens_total", "stage")}),
        Panel(
            "Compute of a round",
            "s",
            "Where the server tells.",
            quantiles("cascade_stage_compute_seconds", "stage", (0.5, 0.95)),
        ),
        Panel(
            "Queue of a round",
            "s",
            "At the server, where it tells.",
            quantiles("cascade_stage_queue_seconds", "stage", (0.5, 0.95)),
        ),
    ),
}

GPU: Final = Dashboard(
    "gpu",
    "cascade: GPUs",
    "GPUs of the rerankers, from NVIDIA's DCGM exporter, beside what the sidecars send them.",
    _ROWS,
    (
        *ONE_PROCESS,
        Variable("host", "GPU host", "label_values(DCGM_FI_DEV_GPU_UTIL, Hostname)"),
        Variable("gpu", "GPU", 'label_values(DCGM_FI_DEV_GPU_UTIL{Hostname=~"$host"}, gpu)'),
    ),
)
