"""How much work one run does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sizes:
    """Per round, so that a round takes some tenths of a second and more."""

    rounds: int
    #: SQLite: transactions, transactions of a hundred events, rows to drain, events one at a time.
    transactions: int
    batches: int
    backlog: int
    single: int
    #: Events per round at each pace (events per second).
    paces: dict[int, int]
    imports: int
    #: On servers: transactions of all clients together, and how many clients.
    server_transactions: int
    clients: tuple[int, ...]
    #: Rows of the drains that a target is set for, and of all other drains.
    main_backlog: int
    server_backlog: int
    #: Rows for a peer that takes its time.
    peer_backlog: int
    #: DONE rows beside which a backlog is drained, and rows that wait while memory is looked at.
    done_rows: int
    pending_rows: int
    #: Seconds of a round of writers that never pause, of looking at instances, and at one that has nothing to do.
    sustained: float
    window: float
    idle: float
    #: Seconds after which a measure is ended: it hangs.
    patience: float = 300
    #: Whether what has no target is measured beside it: tuned options, handlers of the other colour.
    has_more: bool = False


FULL: Final = Sizes(
    rounds=5,
    transactions=600,
    batches=30,
    backlog=9_000,
    single=120,
    paces={200: 100, 1_000: 400},
    imports=7,
    server_transactions=240,
    clients=(1, 16),
    main_backlog=100_000,
    server_backlog=10_000,
    peer_backlog=1_500,
    done_rows=1_000_000,
    pending_rows=1_000_000,
    sustained=0.6,
    window=0.5,
    idle=10,
    patience=900,
)

#: To see that all of it runs, and roughly where it stands.
QUICK: Final = Sizes(
    rounds=2,
    transactions=200,
    batches=5,
    backlog=2_000,
    single=30,
    paces={200: 40, 1_000: 100},
    imports=3,
    server_transactions=96,
    clients=(1, 16),
    main_backlog=3_000,
    server_backlog=1_000,
    peer_backlog=100,
    done_rows=20_000,
    pending_rows=20_000,
    sustained=0.3,
    window=0.3,
    idle=3,
)

#: Without regard to time: every drain is of the large backlog, writers never pause for a minute.
LONG: Final = Sizes(
    rounds=5,
    transactions=5_000,
    batches=200,
    backlog=100_000,
    single=1_000,
    paces={200: 1_000, 1_000: 5_000},
    imports=21,
    server_transactions=4_000,
    clients=(1, 4, 16),
    main_backlog=100_000,
    server_backlog=100_000,
    peer_backlog=5_000,
    done_rows=10_000_000,
    pending_rows=1_000_000,
    sustained=60,
    window=5,
    idle=60,
    patience=5_400,
    has_more=True,
)

FORMS: Final = {"full": FULL, "quick": QUICK, "long": LONG}
