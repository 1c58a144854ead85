"""What effects exactly once cost: a handler's change and the mark of its event in one transaction, or in two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from aftercommit import Outbox
from bench.results import Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers.places import Postgres
from bench.sizes import Sizes

#: Beside each other, in threads of one process: the default of an outbox.
_WORKERS: Final = 4

_EFFECT: Final = "INSERT INTO orders (id, customer, total) VALUES (%s, 'ada', 4200)"
_MARK: Final = "UPDATE outbox_event SET status = 1, done_at = statement_timestamp() WHERE event_id = %s AND status = 0"


def postgres_effects(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog that is due, each event with one INSERT of a business row."""
    rows = 4 * sizes.server_transactions
    with Postgres.opened() as place:
        rivals: dict[str, Rival[Sample]] = {
            "transactional": partial(_drained, place, rows, _transactional),
            "plain": partial(_drained, place, rows, _in_its_own),
            "hand": partial(_by_hand, place, rows),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
    size = f"{rows:,} rows"
    return [
        compared(
            "postgres_effects", f"{way}, {size}", samples["transactional"], samples[name], rival=rival, unit="events/s"
        )
        for way, name, rival in (
            ("beside a loop by hand", "hand", "two transactions by hand, nothing claimed"),
            ("beside a plain handler", "plain", "a handler with a transaction of its own"),
        )
    ]


def _transactional(outbox: Outbox, _: Postgres) -> None:
    @outbox.handler("OrderPlaced", transactional=True)
    def save(event, tx):  # type: ignore[no-untyped-def]
        tx.execute(_EFFECT, (number_of(event.event_id),))


def _in_its_own(outbox: Outbox, place: Postgres) -> None:
    import psycopg  # noqa: PLC0415  (an extra)

    here = threading.local()

    @outbox.handler("OrderPlaced")
    def save(event):  # type: ignore[no-untyped-def]
        if not hasattr(here, "connection"):
            here.connection = psycopg.connect(place.url)
        with here.connection.transaction():
            here.connection.execute(_EFFECT, (number_of(event.event_id),))


def number_of(event_id: str) -> int:
    """Its number in the backlog."""
    return int(event_id[4:])


def _drained(place: Postgres, rows: int, declare: Callable[[Outbox, Postgres], None], _: Path) -> Sample:
    place.clear()
    place.fill(rows)
    outbox, done = Outbox(place.url, worker_count=_WORKERS), 0
    declare(outbox, place)
    outbox.create_schema()
    with Stopwatch() as watch:
        outbox.start()
        outbox.drain()
    done = place.count("status = 1")
    outbox.close()
    _check(place, rows, done)
    return watch.sample(rows)


def _by_hand(place: Postgres, rows: int, _: Path) -> Sample:
    """Each thread knows its events: to claim them would cost a third transaction."""
    import psycopg  # noqa: PLC0415

    place.clear()
    place.fill(rows)
    ids = [row[0] for row in place.run("SELECT event_id FROM outbox_event ORDER BY position")]
    connections = [psycopg.connect(place.url) for _ in range(_WORKERS)]

    def work(number: int) -> None:
        connection: Any = connections[number]
        for event_id in ids[number::_WORKERS]:
            with connection.transaction():
                connection.execute(_EFFECT, (number_of(event_id),))
            with connection.transaction():
                connection.execute(_MARK, (event_id,))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_WORKERS)]
    with Stopwatch() as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for connection in connections:
        connection.close()
    _check(place, rows, place.count("status = 1"))
    return watch.sample(rows)


def _check(place: Postgres, rows: int, done: int) -> None:
    effects = place.run("SELECT count(*) FROM orders")[0][0]
    if (effects, done) != (rows, rows):
        raise RuntimeError(f"{rows} events, {effects} effects, {done} marks")
