"""What a run found: lines of ours beside theirs, with spread, ratio and goal."""

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
    """What a line should reach. It is reported and never enforced; `aim` is the farther mark behind the target."""

    what: Literal["ratio", "figure"]
    target: float
    aim: float | None = None

    def is_met(self, line: Line, mark: float) -> bool:
        """A ratio at least, a figure (a time) at most."""
        if self.what == "ratio":
            return line.ratio is not None and line.ratio.median >= mark
        return line.ours.median <= mark


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
    cpu_ours: Spread | None = None
    cpu_theirs: Spread | None = None
    goal: Goal | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool | None:
        return None if self.goal is None else self.goal.is_met(self, self.goal.target)

    def as_json(self) -> dict[str, Any]:
        record = asdict(self)
        if record["goal"] is not None:
            record["goal"]["is_reached"] = self.is_reached
            aim = record["goal"]["aim"]
            record["goal"]["is_aim_reached"] = None if aim is None else self.goal.is_met(self, aim)
        return record


def compared(
    measure: str,
    variant: str,
    ours: Sequence[Sample],
    theirs: Sequence[Sample],
    *,
    rival: str,
    unit: str,
    goal: Goal | None = None,
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
        goal=goal,
        details={
            "wall_seconds": {"ours": [sample.wall for sample in ours], "theirs": [sample.wall for sample in theirs]},
            "cpu_seconds": {"ours": [sample.cpu for sample in ours], "theirs": [sample.cpu for sample in theirs]},
            "units_per_round": ours[0].units,
        },
    )
