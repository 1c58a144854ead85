"""Lines for people: one row each, as text for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bench.results import Goal, Line, Spread

_HEADS: Final = ("ours", "beside", "", "which", "ratio", "CPU µs per unit", "target", "reached")


def table(lines: Sequence[Line]) -> str:
    """The lines of one measure: medians with (least..greatest) over rounds; CPU is ours / theirs."""
    rows = [(lines[0].measure.upper(), *_HEADS), *map(_row, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def markdown(lines: Sequence[Line]) -> str:
    heads = ("", *_HEADS)
    rows = [heads, ("---",) * len(heads), *map(_row, lines)]
    return "\n".join(f"| {' | '.join(cell.strip() for cell in row)} |" for row in rows)


def _row(line: Line) -> tuple[str, ...]:
    return (
        f"  {line.variant}",
        _spread(line.ours),
        _spread(line.theirs),
        line.unit,
        line.rival,
        _spread(line.ratio),
        _cpu(line),
        "; ".join(map(wanted, line.goals)),
        verdict(line),
    )


def _cpu(line: Line) -> str:
    if line.cpu_ours is None:
        return ""
    if line.cpu_theirs is None:
        return _middle(line.cpu_ours)
    return f"{_middle(line.cpu_ours)} / {_middle(line.cpu_theirs)}"


def wanted(goal: Goal) -> str:
    """`P1 ratio ≥ 0.95`."""
    what = {"ratio": "ratio ≥", "figure": "≤", "cpu": "CPU ≤", "p99": "p99 ≤", "rest": "and ≤"}[goal.what]
    return f"{goal.id} {what} {goal.target:g}" + ("×" if goal.what == "cpu" else "")


def verdict(line: Line) -> str:
    """yes, NO, or for several goals each."""
    return ", ".join({True: "yes", False: "NO", None: "?"}[goal.is_met(line)] for goal in line.goals)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    if spread.low == spread.high:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.low)}..{number(spread.high)})"


def _middle(spread: Spread) -> str:
    return number(spread.median)


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def notes(lines: Iterable[Line]) -> list[str]:
    """What the table has no column for, each once."""
    return list(dict.fromkeys(note for line in lines for note in _notes(line)))


def _notes(line: Line) -> Iterator[str]:
    details = line.details
    yield from (f"{name} was left out: {reason}" for name, reason in details.get("broken", {}).items())
    if "ours" in details:
        yield f"{line.variant}: {_tail(details['ours'])}"
        if "theirs" in details and details["theirs"] is not None:
            yield f"{line.rival}: {_tail(details['theirs'])}"
    elif backlog := details.get("backlog"):
        yield (
            f"{line.variant}: {backlog['at_the_end']:,.0f} of {backlog['written']:,.0f} were not DONE when the "
            "last was written"
        )
    elif "rest_unit" in details:
        yield f"{line.variant}: {number(details['rest'])} {details['rest_unit']}"
    elif "growth_mb" in details:
        yield f"{line.variant}: {number(details['growth_mb'])} MB more at the end than at the beginning"
    elif "third_party" in details:
        yield (
            f"{line.variant}: {number(details['importtime_ms'])} ms by -X importtime; asyncio is "
            f"{'LOADED' if details['loads_asyncio'] else 'not loaded'}; third party: "
            f"{', '.join(details['third_party']) or 'none'}"
        )


def _tail(tail: dict[str, Any]) -> str:
    return (
        f"p95 {number(tail['p95'])}, p99 {number(tail['p99'])}, p99.9 {number(tail['p99.9'])} ms of "
        f"{tail['events']:,} events; p50 from the end of the block {number(tail['p50_after_block'])} ms"
    )
