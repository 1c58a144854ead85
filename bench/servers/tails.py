"""The tail of the log beside the poller of the table, and what the log's slot takes from writers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from aftercommit import EventEnvelope, Outbox, ReplicationTail
from bench import hand
from bench.handlers import handle
from bench.results import Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers.places import Absent, Place, Postgres
from bench.sizes import Sizes

#: Slots belong to a whole server.
_SLOT: Final = "aftercommit_bench"

#: Events of one transaction of the backlog.
_TOGETHER: Final = 50


def postgres_tail(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog that a started process delivers, from the log and from the table; and transactions of one writer."""
    rows = sizes.server_backlog
    with Postgres.opened() as place:
        level = place.run("SHOW wal_level")[0][0]
        if level != "logical":
            raise Absent(
                f"the server has wal_level = {level}; logical is needed, and {Postgres.variable} names another"
            )
        drains: dict[str, Rival[Sample]] = {
            "poller": partial(_polled, place, rows),
            "tail": partial(_tailed, place, rows),
        }
        writes: dict[str, Rival[Sample]] = {
            "plain": partial(_written, place, sizes.server_transactions, has_slot=False),
            "slot": partial(_written, place, sizes.server_transactions, has_slot=True),
        }
        drained = in_turn(drains, sizes.rounds, workshop)
        written = in_turn(writes, sizes.rounds, workshop)
    return [
        compared(
            "postgres_tail",
            f"psycopg, default options, {rows:,} rows",
            drained["tail"],
            drained["poller"],
            rival="poller of one process",
            unit="rows/s",
        ),
        compared(
            "postgres_tail",
            "a writer whose rows are born done",
            written["slot"],
            written["plain"],
            rival="a writer without a slot",
            unit="transactions/s",
        ),
    ]


def _fill(place: Place, rows: int) -> None:
    """In transactions, as programs write; the log has them one after the other."""
    place.clear()
    writer = Outbox.writer_only(place.url)
    for start in range(0, rows, _TOGETHER):
        with writer.transaction():
            writer.write_all(
                EventEnvelope("OrderPlaced", payload_json=hand.text(number))
                for number in range(start, min(start + _TOGETHER, rows))
            )
    writer.close()
    place.tidy()


def _polled(place: Place, rows: int, _: Path) -> Sample:
    _fill(place, rows)
    outbox = Outbox(place.url).register("OrderPlaced", handle)
    with Stopwatch() as watch:
        outbox.start()
        delivered = outbox.drain().delivered
    outbox.close()
    assert delivered == rows == place.count("status = 1")
    return watch.sample(rows)


def _tailed(place: Place, rows: int, _: Path) -> Sample:
    tail = ReplicationTail(place.url, slot=_SLOT).register("OrderPlaced", handle)
    tail.create_schema()
    try:
        _fill(place, rows)
        with Stopwatch() as watch:
            tail.start()
            delivered = tail.drain().delivered
        tail.close()
        assert delivered == rows == place.count("status = 1 AND lease_epoch = 0")
    finally:
        tail.close()
        tail.drop_slot()
    return watch.sample(rows)


def _written(place: Place, transactions: int, _: Path, *, has_slot: bool) -> Sample:
    place.clear()
    tail = ReplicationTail(place.url, slot=_SLOT)
    outbox = Outbox.writer_only(place.url)
    if has_slot:
        tail.create_schema()
    try:
        with outbox.transaction():
            outbox.write("OrderPlaced", hand.text(0))
        with Stopwatch() as watch:
            for number in range(transactions):
                with outbox.transaction():
                    outbox.write("OrderPlaced", hand.text(number))
        assert place.count(f"status = {int(has_slot)}") == transactions + 1
    finally:
        outbox.close()
        if has_slot:
            tail.drop_slot()
        tail.close()
    return watch.sample(transactions)
