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
    #: On servers: transactions of all clients together, and how many clients.
    server_transactions: int
    clients: tuple[int, ...]
    server_backlog: int
    #: What the slower of the peers get.
    peer_backlog: int
    #: DONE rows beside which a backlog is drained.
    done_rows: int


FULL = Sizes(
    rounds=5,
    transactions=3_000,
    batches=100,
    backlog=50_000,
    single=500,
    paces={200: 300, 1_000: 1_000},
    imports=15,
    server_transactions=2_000,
    clients=(1, 16),
    server_backlog=20_000,
    peer_backlog=2_000,
    done_rows=1_000_000,
)

QUICK = Sizes(
    rounds=2,
    transactions=300,
    batches=10,
    backlog=2_000,
    single=30,
    paces={200: 20, 1_000: 60},
    imports=3,
    server_transactions=60,
    clients=(1, 2),
    server_backlog=200,
    peer_backlog=50,
    done_rows=2_000,
)
