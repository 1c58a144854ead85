"""A run as pictures: bars for ratios, and percentiles for latencies, with a mark where each target is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.results import Line

_REACHED, _MISSED, _REPORTED, _MARK = "#2a9d8f", "#c8553d", "#8d99ae", "#222222"

#: Percentiles beside the median, and how they are drawn.
_TAIL: Final = {"p99": "|", "p99.9": "x"}


def draw_ratios(path: Path, lines: Sequence[Line]) -> bool:
    """Longer is better. False when there is nothing to draw, or nothing to draw with."""
    shown = [line for line in lines if line.ratio is not None and "ours" not in line.details]
    return _draw(path, shown, "ratio to what stands beside it (black: target, at least)", _bars)


def draw_latencies(path: Path, lines: Sequence[Line]) -> bool:
    """Shorter is better."""
    shown = [line for line in lines if "ours" in line.details]
    return _draw(
        path, shown, "milliseconds from COMMIT to the handler: p50, | p99, x p99.9 (black: target of p50)", _dots
    )


def _draw(path: Path, lines: Sequence[Line], label: str, one: Any) -> bool:
    try:
        import matplotlib as mpl  # noqa: PLC0415  (an extra; a run without it still has its figures)
    except ImportError:
        return False
    if not lines:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axis = pyplot.subplots(figsize=(11, 1.2 + 0.3 * len(lines)), layout="constrained")
    for place, line in enumerate(lines):
        one(axis, place, line)
    axis.set_yticks(range(len(lines)), [_label(line) for line in lines], fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.grid(axis="x", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return True


def _bars(axis: Any, place: int, line: Line) -> None:
    spread = line.ratio
    assert spread is not None
    error = [[spread.median - spread.low], [spread.high - spread.median]]
    axis.barh(place, spread.median, xerr=error, color=_colour(line), ecolor="#555555", capsize=2, height=0.7)
    axis.set_xscale("log")
    _mark(axis, place, [goal.target for goal in line.goals if goal.what == "ratio"])


def _dots(axis: Any, place: int, line: Line) -> None:
    axis.set_xscale("log")
    axis.plot(line.ours.median, place, "o", color=_colour(line))
    for name, shape in _TAIL.items():
        axis.plot(line.details["ours"][name], place, shape, color=_colour(line))
    _mark(axis, place, [goal.target for goal in line.goals if goal.what == "figure"])


def _colour(line: Line) -> str:
    return {True: _REACHED, False: _MISSED, None: _REPORTED}[line.is_reached]


def _mark(axis: Any, place: int, targets: Sequence[float]) -> None:
    for target in targets:
        axis.plot([target] * 2, [place - 0.45, place + 0.45], color=_MARK, linewidth=2)


def _label(line: Line) -> str:
    beside = f" / {line.rival}" if line.rival else ""
    return f"{line.measure}: {line.variant}{beside}"
