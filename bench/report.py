"""A run for people and for programs: a table, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.results import Goal, Line, Spread

_HEADS: Final = ("ours", "by hand", "", "ratio", "CPU µs per unit", "target", "reached")


def table(lines: Sequence[Line]) -> str:
    """The lines of one measure: medians with (least..greatest) over rounds; CPU is ours / by hand."""
    rows = [(lines[0].measure.upper(), *_HEADS), *map(_row, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(line: Line) -> tuple[str, ...]:
    return (
        f"  {line.variant}",
        _spread(line.ours),
        _spread(line.theirs),
        line.unit,
        _spread(line.ratio),
        f"{_middle(line.cpu_ours)} / {_middle(line.cpu_theirs)}" if line.cpu_ours else "",
        _goal(line.goal),
        {True: "yes", False: "NO", None: ""}[line.is_reached],
    )


def _goal(goal: Goal | None) -> str:
    if goal is None:
        return "report"
    sign = "≥" if goal.what == "ratio" else "≤"
    return f"{sign} {goal.target:g}" + (f" (aim {goal.aim:g})" if goal.aim is not None else "")


def _spread(spread: Spread | None) -> str:
    return "" if spread is None else f"{_number(spread.median)} ({_number(spread.low)}..{_number(spread.high)})"


def _middle(spread: Spread | None) -> str:
    return "" if spread is None else _number(spread.median)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def notes(lines: Iterable[Line]) -> Iterator[str]:
    """What the table has no column for."""
    for line in lines:
        if line.measure.endswith("latency"):
            ours, theirs = line.details["ours"], line.details["theirs"]
            yield (
                f"  {line.variant}: p95 {_middle(ours['p95'])}, p99 {_middle(ours['p99'])} ms; p50 from the end of the "
                f"block {_middle(ours['p50_after_block'])} ms; by hand p95 {_middle(theirs['p95'])}, "
                f"p99 {_middle(theirs['p99'])} ms"
            )
        elif counts := line.details.get("transactions_per_event"):
            yield (
                f"  {line.variant}: {_number(counts['ours'])} transactions per event on the server; by hand "
                f"{_number(counts['theirs'])}"
            )
        elif backlog := line.details.get("backlog"):
            yield (
                f"  {line.variant}: not DONE half way {backlog['half_way']:,.0f}, when the last was written "
                f"{backlog['at_the_end']:,.0f}"
            )
        elif line.measure == "import":
            details = line.details
            yield (
                f"  CPU {_spread(details['cpu_ms'])} ms; {details['importtime_ms']:.1f} ms by -X importtime; asyncio "
                f"is {'LOADED' if details['loads_asyncio'] else 'not loaded'}; third party: "
                f"{', '.join(details['third_party'])}"
            )
            yield (
                f"  with a first outbox on SQLite {_spread(details['outbox_ms'])} ms, "
                f"CPU {_spread(details['outbox_cpu_ms'])} ms"
            )


def save(path: Path, lines: Iterable[Line], **about: Any) -> None:
    record = {**about, "results": [line.as_json() for line in lines]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False, default=asdict) + "\n")
