"""What a run found: lines of ours beside theirs, with spread, ratio and goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal, Self

from bench.rounds import Sample


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds and the least and the greatest round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Goal:
    """What a line should reach, by the number of its target. It is reported and never enforced.

    A ratio at least; at most: the figure itself, `cpu` (processor time in multiples of the other side's), `p99`, `rest`
    (a figure of its own among the details).
    """

    id: str
    what: Literal["ratio", "figure", "cpu", "p99", "rest"]
    target: float

    def value(self, line: Line) -> float | None:
        match self.what:
            case "ratio":
                return None if line.ratio is None else line.ratio.median
            case "figure":
                return line.ours.median
            case "cpu":
                return None if line.cpu_ratio is None else line.cpu_ratio.median
            case "p99" | "rest":
                return float(line.details[self.what])

    def is_met(self, line: Line) -> bool | None:
        value = self.value(line)
        if value is None:
            return None
        return value >= self.target if self.what == "ratio" else value <= self.target


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison. The ratio is taken round by round and tells how good ours is: 1 is as good as theirs."""

    measure: str
    variant: str
    rival: str
    unit: str
    ours: Spread
    theirs: Spread | None = None
    ratio: Spread | None = None
    #: Microseconds of processor time per unit, and ours in multiples of theirs.
    cpu_ours: Spread | None = None
    cpu_theirs: Spread | None = None
    cpu_ratio: Spread | None = None
    goals: tuple[Goal, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool | None:
        """All goals; None where there is none."""
        return all(goal.is_met(self) for goal in self.goals) if self.goals else None

    def as_json(self) -> dict[str, Any]:
        record = asdict(self)
        for told, goal in zip(record["goals"], self.goals, strict=True):
            told |= {"value": goal.value(self), "is_reached": goal.is_met(self)}
        return record


def compared(
    measure: str,
    variant: str,
    ours: Sequence[Sample],
    theirs: Sequence[Sample],
    *,
    rival: str,
    unit: str,
    goals: Sequence[Goal] = (),
    details: dict[str, Any] | None = None,
) -> Line:
    """A line of rates."""
    return Line(
        measure=measure,
        variant=variant,
        rival=rival,
        unit=unit,
        ours=Spread.of([sample.rate for sample in ours]),
        theirs=Spread.of([sample.rate for sample in theirs]),
        ratio=Spread.of([our.rate / their.rate for our, their in zip(ours, theirs, strict=True)]),
        cpu_ours=Spread.of([sample.cpu_micros for sample in ours]),
        cpu_theirs=Spread.of([sample.cpu_micros for sample in theirs]),
        cpu_ratio=_cpu_ratio(ours, theirs),
        goals=tuple(goals),
        details={
            "wall_seconds": {"ours": [sample.wall for sample in ours], "theirs": [sample.wall for sample in theirs]},
            "cpu_seconds": {"ours": [sample.cpu for sample in ours], "theirs": [sample.cpu for sample in theirs]},
            "units": {"ours": [sample.units for sample in ours], "theirs": [sample.units for sample in theirs]},
            **(details or {}),
        },
    )


def _cpu_ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Spread | None:
    """None where a side took less time than the system counts."""
    if not all(sample.cpu for sample in theirs):
        return None
    return Spread.of([our.cpu_micros / their.cpu_micros for our, their in zip(ours, theirs, strict=True)])
