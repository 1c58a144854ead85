"""What write() adds to a flush of a SQLAlchemy session, beside a row of the same table mapped by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
)
from sqlalchemy.orm import Session, registry

from aftercommit import Outbox
from aftercommit.events.ids import new_id
from bench import hand
from bench.results import Goal, Line, Spread
from bench.rounds import Sample, Stopwatch, in_turn
from bench.sizes import Sizes

#: What a transaction has besides its business row.
WAYS: Final = ("nothing", "rows", "writes")

#: Transactions of one way at a time.
_TURN: Final = 20

#: A write costs at most one and a half times what a mapped row costs.
_GOAL: Final = Goal("session", "ratio", 0.67)

_NAMES: Final = ("event_type", "aggregate_type", "aggregate_id", "tenant_id", "event_key", "content_type", "locked_by")
_TIMES: Final = ("occurred_at", "scheduled_at", "created_at", "available_at", "locked_at", "lease_until")

#: The least disturbed turn of each way.
Samples = dict[str, Sample]

#: Work in a session: takes it and the number of the transaction.
Adding = Callable[[Session, int], None]


class Order:
    """The business row that every transaction has."""

    def __init__(self, number: int) -> None:
        self.id, self.customer, self.total = hand.order(number)


registry().map_imperatively(
    Order,
    Table(
        "orders",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("customer", String),
        Column("total", Integer),
    ),
)


class ByHand:
    """A row of the outbox's table as an application would map and fill it."""

    def __init__(self, number: int, now: Any) -> None:
        self.event_id, self.handler_id = new_id(), ""
        self.event_type, self.aggregate_type, self.aggregate_id = "OrderPlaced", "__GLOBAL__", None
        self.tenant_id, self.event_key, self.partition_no = None, None, 0
        self.payload, self.payload_bytes = hand.text(number), None
        self.content_type, self.payload_version, self.headers = "application/json", 1, None
        self.status, self.lease_epoch, self.scheduled_at = 0, 0, None
        self.occurred_at = self.created_at = self.available_at = now
        self.locked_by, self.locked_at, self.lease_until = None, None, None


def sqlite_session(sizes: Sizes, workshop: Path) -> list[Line]:
    """On SQLite, with the listeners that SQLAlchemy's documents recommend there. Nothing waits for the disk."""

    def play(events: int, folder: Path) -> Samples:
        path = hand.new_database(folder)
        return played({way: _sqlite(path) for way in WAYS}, events, sizes.transactions // events, _micros)

    return measured("sqlite_session", play, sizes, workshop)


def measured(measure: str, play: Callable[[int, Path], Samples], sizes: Sizes, workshop: Path) -> list[Line]:
    """One event and ten: the transaction without any, with mapped rows, and with writes."""
    lines = []
    for events in (1, 10):
        rounds = in_turn({"all": partial(play, events)}, sizes.rounds, workshop)["all"]
        lines.append(_line(measure, events, rounds))
    return lines


def _line(measure: str, events: int, rounds: Sequence[Samples]) -> Line:
    """Processor time of this process: what the database does for a row it does for either."""
    rows = [each["rows"].cpu_micros - each["nothing"].cpu_micros for each in rounds]
    writes = [each["writes"].cpu_micros - each["nothing"].cpu_micros for each in rounds]
    return Line(
        measure=measure,
        variant=f"{events} per transaction, one INSERT",
        rival="a mapped row",
        unit="CPU µs added",
        ours=Spread.of(writes),
        theirs=Spread.of(rows),
        ratio=Spread.of([row / write for row, write in zip(rows, writes, strict=True)]),
        cpu_ours=Spread.of([each["writes"].cpu_micros for each in rounds]),
        cpu_theirs=Spread.of([each["rows"].cpu_micros for each in rounds]),
        goals=(_GOAL,),
    )


def played(engines: dict[str, Engine], events: int, transactions: int, now: Callable[[], Any]) -> Samples:
    """One round. Ways take turns every few transactions, so that whatever else the machine does harms all alike.

    The outbox is not started: delivery is no part of a write.
    """
    outbox, numbers = Outbox(engines["writes"]), count()
    adding: dict[str, Adding] = {"nothing": _nothing, "rows": _rows(events, now), "writes": _writes(outbox, events)}
    spent: dict[str, list[Sample]] = {way: [] for way in WAYS}
    for turn in range(-2, max(transactions // _TURN, 1)):
        for way in WAYS:
            with Stopwatch() as watch:
                for _ in range(_TURN):
                    _transact(engines[way], adding[way], next(numbers))
            spent[way] += [watch.sample(_TURN)] * (turn >= 0)  # the first ones warm up
    for way, inserts in (("nothing", 0), ("rows", 1), ("writes", 1)):
        assert _inserts(engines[way], adding[way], next(numbers)) == inserts
        engines[way].dispose()
    outbox.close()
    return {way: min(samples, key=lambda sample: sample.cpu) for way, samples in spent.items()}


def _transact(engine: Engine, add: Adding, number: int) -> None:
    with Session(engine) as session:
        session.add(Order(number))
        add(session, number)
        session.commit()


def _nothing(session: Session, number: int) -> None:
    """The transaction alone."""


def _rows(events: int, now: Callable[[], Any]) -> Adding:
    kind = _kind(type(now()))

    def add(session: Session, number: int) -> None:
        for _ in range(events):
            session.add(kind(number, now()))

    return add


@cache
def _kind(instant: type) -> type[ByHand]:
    """A mapped class for tables whose times are of this type; the columns are the ones that a write fills in."""
    at = BigInteger if instant is int else DateTime(timezone=True)
    columns: list[Column[Any]] = [
        Column("event_id", String, primary_key=True),
        Column("handler_id", String, primary_key=True),
    ]
    columns += [Column(name, String) for name in _NAMES]
    columns += [Column(name, Integer) for name in ("partition_no", "payload_version", "status", "lease_epoch")]
    columns += [Column(name, at) for name in _TIMES]
    columns += [Column("payload", Text), Column("payload_bytes", LargeBinary), Column("headers", Text)]
    kind = type("Mapped", (ByHand,), {})
    registry().map_imperatively(kind, Table("outbox_event", MetaData(), *columns), eager_defaults=False)
    return kind


def _writes(outbox: Outbox, events: int) -> Adding:
    def add(session: Session, number: int) -> None:
        for _ in range(events):
            outbox.write("OrderPlaced", hand.payload(number), tx=session)

    return add


def _inserts(engine: Engine, add: Adding, number: int) -> int:
    """How many statements put events into the table."""
    seen: list[str] = []

    def keep(*told: Any) -> None:
        seen.append(told[2])

    event.listen(engine, "before_cursor_execute", keep)
    _transact(engine, add, number)
    event.remove(engine, "before_cursor_execute", keep)
    return sum("outbox_event" in statement for statement in seen)


def _micros() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000_000)


def _sqlite(path: Path) -> Engine:
    engine = create_engine(hand.url(path))

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous = OFF")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine
