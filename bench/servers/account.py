"""What one event costs the server: statements, transactions, bytes of its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

from aftercommit import Outbox
from bench.handlers import handle, parse
from bench.results import Line, Spread
from bench.rounds import in_turn
from bench.servers import teams
from bench.servers.clients import WARM_UP, threads
from bench.servers.hand_postgres import BUSINESS, PsycopgHand
from bench.servers.places import Postgres
from bench.servers.team import until
from bench.sizes import Sizes

#: Counts differ less than times do, and have no targets.
_ROUNDS: Final = 3

#: What is counted, and its unit.
_COUNTS: Final = {"statements": "statements", "transactions": "transactions", "wal": "WAL bytes"}

#: Statements, transactions and bytes of one event.
Bill = dict[str, float]


class _Counted(psycopg.Connection[Any]):
    """Counts what it waits for: one answer of the server each."""

    waits = 0

    def wait(self, *arguments: Any, **options: Any) -> Any:
        _Counted.waits += 1
        return super().wait(*arguments, **options)


@dataclass(frozen=True, slots=True)
class Work:
    """What is laid out before the counters are read, and what is done then, which says for how many events."""

    lay_out: Callable[[], None]
    do: Callable[[], int]


def postgres_account(sizes: Sizes, workshop: Path) -> list[Line]:
    """With psycopg, by hand and by the outbox: writing with one client, draining a backlog, and all of it at once.

    The log is the whole server's, so others who use it at the same time add to it; the least of the rounds is told."""
    count, rows = sizes.server_transactions, sizes.server_backlog
    with Postgres.opened() as place:
        fill = partial(place.fill, rows)
        work = {
            "write": Work(place.clear, partial(_write, place, count)),
            "write, by hand": Work(place.clear, partial(_write_by_hand, place, count)),
            "drain": Work(fill, partial(_drain, place, rows)),
            "drain, by hand": Work(fill, partial(_drain_by_hand, place, rows)),
            "write → DONE, 16 clients": Work(place.clear, partial(_write, place, count, clients=16, delivers=True)),
        }
        rivals = {name: partial(_bill, place, each) for name, each in work.items()}
        bills = in_turn(rivals, min(sizes.rounds, _ROUNDS), workshop)
    return [
        _line(name, count, bills[name], bills.get(f"{name}, by hand"))
        for name in bills
        if not name.endswith("by hand")
        for count in _COUNTS
    ]


def _bill(place: Postgres, work: Work, _: Path) -> Bill:
    work.lay_out()
    before = _counters(place)
    events = work.do()
    after = _counters(place)
    return {count: (after[count] - before[count]) / events for count in _COUNTS}


def _counters(place: Postgres) -> dict[str, int]:
    return {"statements": _Counted.waits, "transactions": place.committed(), "wal": place.wal()}


def _line(name: str, count: str, ours: list[Bill], theirs: list[Bill] | None) -> Line:
    told = min if count == "wal" else median

    def spread(bills: list[Bill]) -> Spread:
        values = [bill[count] for bill in bills]
        return Spread(told(values), min(values), max(values))

    return Line(
        measure="postgres_account",
        variant=name,
        rival="by hand" if theirs else "",
        unit=f"{_COUNTS[count]} per event",
        ours=spread(ours),
        theirs=spread(theirs) if theirs else None,
    )


def _write(place: Postgres, count: int, *, clients: int = 1, delivers: bool = False) -> int:
    with ConnectionPool(place.url, connection_class=_Counted, min_size=1, max_size=clients + 8) as pool:
        outbox = Outbox(pool) if delivers else Outbox.writer_only(pool, wakeups=False)
        with outbox.register("OrderPlaced", handle) if delivers else outbox:
            threads(lambda: teams.Owned(outbox, BUSINESS), clients, count)
            until(lambda: not (delivers and place.is_pending()))
    return count + clients * WARM_UP


def _write_by_hand(place: Postgres, count: int) -> int:
    threads(lambda: _CountedHand(place.url).open(), 1, count)
    return count + WARM_UP


def _drain(place: Postgres, rows: int) -> int:
    with (
        ConnectionPool(place.url, connection_class=_Counted, min_size=1, max_size=8) as pool,
        Outbox(pool).register("OrderPlaced", handle),
    ):
        until(lambda: not place.is_pending())
    return rows


def _drain_by_hand(place: Postgres, rows: int) -> int:
    by_hand = _CountedHand(place.url).open()
    assert by_hand.drain(500, parse) == rows
    by_hand.close()
    return rows


class _CountedHand(PsycopgHand):
    def open(self) -> _CountedHand:
        self.connection = _Counted.connect(self._url)
        self._cursor = self.connection.cursor()
        return self
