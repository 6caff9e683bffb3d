"""Cut a long document into windows."""

from __future__ import annotations

from cascade.policy.stage_specs import Windows

__all__ = ["window_starts"]


def window_starts(length: int, width: int, windows: Windows | None) -> list[int]:
    """Return where the windows of a document of ``length`` ids begin, each ``width`` ids long, one at least.

    Each repeats the last ``overlap_tokens`` ids of the one before, at most half of a window. The one that reaches the
    document's end begins so early that it is full; beyond ``most`` windows nothing is read.
    """
    if windows is None or length <= width or width < 1:
        return [0]
    step = width - min(windows.overlap_tokens, width // 2)
    starts = [0]
    while len(starts) < windows.most and starts[-1] + width < length:
        starts.append(min(starts[-1] + step, length - width))
    return starts
