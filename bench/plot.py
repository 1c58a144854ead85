"""A run as a picture: bars for ratios and for latencies, with a mark where each target is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import Line

_REACHED, _MISSED, _REPORTED, _MARK = "#2a9d8f", "#c8553d", "#8d99ae", "#222222"


def draw(path: Path, lines: Sequence[Line], title: str) -> bool:
    """False when matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  (an extra; a run without it still has its figures)
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    ratios = [line for line in lines if not line.measure.endswith("latency") and line.ratio is not None]
    times = [line for line in lines if line.measure.endswith("latency")]
    panels = [panel for panel in (ratios, times) if panel]
    if not panels:
        return True
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(11, 1.8 + 0.36 * len(ratios + times) + len(panels)),
        height_ratios=[len(panel) + 1 for panel in panels],
        squeeze=False,
        layout="constrained",
    )
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        _bars(axis, panel, is_ratio=panel is ratios)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _bars(axis: Any, lines: Sequence[Line], *, is_ratio: bool) -> None:
    """Longer is better on the first panel, shorter on the second."""
    for place, line in enumerate(lines):
        spread = line.ratio if is_ratio and line.ratio is not None else line.ours
        colour = {True: _REACHED, False: _MISSED, None: _REPORTED}[line.is_reached]
        below, above = spread.median - spread.low, spread.high - spread.median
        axis.barh(place, spread.median, xerr=[[below], [above]], color=colour, ecolor="#555555", capsize=2, height=0.7)
        if line.goal is not None:
            axis.plot([line.goal.target] * 2, [place - 0.45, place + 0.45], color=_MARK, linewidth=2)
    axis.set_yticks(range(len(lines)), [_label(line) for line in lines], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(
        "ratio to the same work by hand (black: target, at least)"
        if is_ratio
        else "milliseconds from COMMIT to the handler, p50 (black: target, at most)"
    )
    axis.grid(axis="x", alpha=0.3)


def _label(line: Line) -> str:
    return line.variant if line.measure.endswith("latency") else f"{line.measure}: {line.variant}"
