"""How much work one run does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Per round, so that a round takes some tenths of a second and more."""

    rounds: int
    transactions: int
    batches: int
    backlog: int
    #: Events per round, one at a time and at each pace (events per second).
    single: int
    paces: dict[int, int]
    imports: int


FULL = Sizes(
    rounds=5,
    transactions=3_000,
    batches=100,
    backlog=50_000,
    single=500,
    paces={200: 300, 1_000: 1_000},
    imports=15,
)

QUICK = Sizes(
    rounds=2,
    transactions=300,
    batches=10,
    backlog=2_000,
    single=30,
    paces={200: 20, 1_000: 60},
    imports=3,
)
