"""The order service: its tables, its outbox, and how an order is placed. What it tells the customer is the mailer's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from aftercommit import DeadEvent, Exponential, Outbox
from aftercommit.demo.mailer import CallLog, Mailer
from aftercommit.demo.pace import Pace

#: Failed attempts after which an event is dead.
MAX_ATTEMPTS: Final = 4

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT, items INTEGER, placed_by INTEGER)",
    "CREATE TABLE IF NOT EXISTS calls"
    " (number INTEGER, event_id TEXT, error TEXT, ms_after_commit REAL, delivered_by INTEGER)",
    "CREATE TABLE IF NOT EXISTS dead_letters (event_id TEXT, attempts INTEGER, error TEXT, is_replayed INTEGER)",
)

_INSERT_ORDER: Final = "INSERT INTO orders (number, customer, items, placed_by) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class OrderPlaced:
    """The event: what others need to know about an order."""

    number: int
    customer: str
    items: int


class PaymentDeclined(Exception):
    """Raised between the event and the commit, so that both are rolled back."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the payment of order {number} is declined")
        self.number = number


class Shop:
    """A `with` block in which orders are placed and their events are delivered."""

    def __init__(self, database: Path, pace: Pace, *, note: Callable[[str], None], first: int = 1001) -> None:
        self.mailer = Mailer()
        self._calls = CallLog(self._record_call, note=note)
        self._numbers = count(first)
        self.outbox = Outbox(
            f"sqlite:///{quote(str(database))}",
            max_attempts=MAX_ATTEMPTS,
            retry_policy=Exponential(initial=pace.first_retry, maximum="5s"),
            lock_timeout=pace.lease,
            poll_interval=pace.poll_interval,
            drain_timeout="1s",
            interceptors=[self._calls],
        )
        self.outbox.register("Order", "OrderPlaced", self.mailer.confirm)

    def __enter__(self) -> Self:
        with self.outbox.transaction() as tx:
            for table in _TABLES:
                tx.execute(table)
        self.outbox.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.outbox.close()

    def place(self, customer: str, *, items: int = 1, pays: bool = True, timeouts: int = 0) -> int:
        """Save an order and its event in one transaction; the order's number.

        `timeouts` is how often the mail server will not answer.
        """
        number = next(self._numbers)
        self.mailer.timeouts[number] = timeouts
        with self.outbox.transaction() as tx:
            # Before write(), whose own callback starts the delivery: so the clock runs from the commit.
            tx.after_commit(lambda: self._calls.committed(number))
            tx.execute(_INSERT_ORDER, (number, customer, items, os.getpid()))
            self.outbox.write(OrderPlaced(number, customer, items), aggregate_type="Order", aggregate_id=number)
            if not pays:
                raise PaymentDeclined(number)
        return number

    def _record_call(self, row: tuple[object, ...]) -> None:
        with self.outbox.transaction() as tx:
            tx.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?)", row)

    def inspect_dead(self) -> list[DeadEvent]:
        """The dead letters, copied to a table of the shop's own."""
        dead = self.outbox.dead.query()
        with self.outbox.transaction() as tx:
            for each in dead:
                values = (each.event_id, each.attempts, each.last_error)
                tx.execute("INSERT INTO dead_letters VALUES (?, ?, ?, 0)", values)
        return dead

    def replay_dead(self) -> None:
        """Give every dead letter a new life, and write it down."""
        for each in self.outbox.dead.query():
            if self.outbox.dead.replay(each.event_id):
                with self.outbox.transaction() as tx:
                    tx.execute("UPDATE dead_letters SET is_replayed = 1 WHERE event_id = ?", (each.event_id,))
