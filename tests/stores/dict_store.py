"""A store without SQL, over a dict: the port is enough for it, and the suite can look at it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any, NoReturn

from aftercommit.errors import InvalidOption, UndecodableRow, UnsupportedTransaction
from aftercommit.events.claims import (
    Backlog,
    Claim,
    Claimed,
    ClaimRequest,
    DeadEvent,
    DeadFilter,
    Lease,
    NewEvent,
    QueryResult,
    RowKey,
    Settlement,
    Undecodable,
)
from aftercommit.events.codec import decode_headers, encode_headers
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.order import UNORDERED, BlockedKey, Heads, HeadsRequest, KeyClaimRequest
from aftercommit.events.outcome import Dead, Defer, Done, Outcome, Release, Retry
from aftercommit.events.redact import storable
from aftercommit.ports import AdoptedTx, Capabilities, Colour, EventStore, OpenTransaction

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
FREE = {"locked_by": None, "locked_at": None, "lease_until": None}
ANEW = {"status": 0, "attempts": 0, "abandoned": 0, "done_at": None, "last_error": None, "done_handlers": None, **FREE}

EVERY = DeadFilter()

Row = dict[str, Any]


def now() -> int:
    """The clock of this database, which is not the one of the application."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000


class Rows:
    """What several stores share: the rows of a table by their keys, and one lock for all."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], Row] = {}
        self.positions = itertools.count(1)
        self.lock = RLock()

    def where(self, wanted: Callable[[Row], bool]) -> list[Row]:
        return sorted((row for row in self.by_key.values() if wanted(row)), key=lambda row: row["position"])

    def drop(self, rows: Iterable[Row]) -> int:
        gone = [self.by_key.pop((row["event_id"], row["handler_id"])) for row in rows]
        return len(gone)


class DictTransaction:
    """Rows that nobody else sees until the commit."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.written: dict[tuple[str, str], Row] = {}
        self.is_open = True
        self._marks: dict[str, int] = {}

    @property
    def connection(self) -> object:
        return self

    async def commit(self) -> None:
        with self.rows.lock:
            for row in self.written.values():
                row["position"] = next(self.rows.positions)
            self.rows.by_key |= self.written
        self.is_open = False

    async def end(self) -> None:
        self.is_open = False

    async def savepoint(self, name: str) -> None:
        self._marks[name] = len(self.written)

    async def release(self, name: str) -> None:
        del self._marks[name]

    async def rollback_to(self, name: str) -> None:
        self.written = dict(list(self.written.items())[: self._marks[name]])

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_sql()

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        refuse_sql()

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        refuse_sql()

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        refuse_sql()


def refuse_sql() -> NoReturn:
    raise UnsupportedTransaction("this store runs no SQL", fix="call its own methods")


class DictStore:
    """Events in a dict."""

    colour = Colour.BLOCKING
    capabilities = Capabilities()
    where = "a dict"
    order = UNORDERED
    membership = wakeups = sql_table = None
    is_ready = True

    def __init__(self, rows: Rows, *, delete_completed: bool = False) -> None:
        self._rows = rows
        self._deletes = delete_completed
        self.records = DictRecords(rows)

    async def open(self) -> None: ...

    async def create_schema(self) -> None: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...

    async def begin(self, isolation: str | None = None) -> OpenTransaction:
        return DictTransaction(self._rows)

    def outage(self, error: Exception) -> None: ...

    def adopt(self, handle: object) -> AdoptedTx | None:
        return None

    async def refuse_foreign(self, handle: object, tx: AdoptedTx) -> None: ...

    async def insert(self, tx: Any, events: Sequence[NewEvent]) -> None:
        written = {(each.event.event_id, each.handler_id): row_of(each) for each in events}
        with self._rows.lock:
            if len(written) < len(events) or written.keys() & (tx.written.keys() | self._rows.by_key.keys()):
                raise ValueError("duplicate event")
            tx.written |= written

    async def surviving(self, tx: Any, keys: Sequence[RowKey]) -> Collection[RowKey]:
        return {key for key in keys if key in tx.written or key in self._rows.by_key}

    async def claim(self, request: ClaimRequest) -> Claim:
        if not request.owner:
            raise InvalidOption("a claim has no owner", fix="pass the owner's id")
        with self._rows.lock:
            at, floor = now(), request.floor if isinstance(request.floor, tuple) else (-(2**62), -1)
            latest = at - request.skip_recent // MICRO
            pending = self._rows.where(lambda row: row["status"] in (0, 2))
            due = sorted(
                (
                    row
                    for row in pending
                    if row["available_at"] <= at
                    and place(row) > floor
                    and row["created_at"] <= latest
                    and (row["locked_by"] is None or row["lease_until"] <= at)
                ),
                key=place,
            )[: request.limit]
            is_full = len(due) >= request.limit
            later = [row["available_at"] - at for row in pending if row["available_at"] > at]
            next_due = None if is_full or not later else min(later) / 1e6
            floor_behind = place(due[-1]) if is_full and due else None
            claimed = [self._claimed(row, request, at) for row in sorted(due, key=lambda row: row["position"])]
            return Claim(claimed, floor_behind, next_due)

    def _claimed(self, row: Row, request: ClaimRequest, at: int) -> Claimed | Undecodable:
        is_takeover = row["locked_by"] not in (None, request.owner)
        lease_until = at + request.lock_timeout // MICRO
        row |= {"locked_by": request.owner, "locked_at": at, "lease_until": lease_until}
        row["lease_epoch"] += 1
        key = RowKey(row["event_id"], row["handler_id"])
        lease = Lease(key, request.owner, row["lease_epoch"], request.deadline)
        try:
            return Claimed(
                event_of(row), lease, row["position"], instant(row["created_at"]), row["attempts"], row["abandoned"],
                tuple(json.loads(row["done_handlers"] or "[]")), is_takeover or row["abandoned"] > 0,
                (at - row["created_at"]) * MICRO,
            )  # fmt: skip
        except (UndecodableRow, ValueError) as error:
            return Undecodable(lease, error)

    async def heads(self, request: HeadsRequest) -> Heads:
        raise NotImplementedError

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        raise NotImplementedError

    def _held(self, lease: Lease) -> Row | None:
        """The row, where the fence lets its holder pass."""
        row = self._rows.by_key.get(lease.key)
        if row is None or row["status"] not in (0, 2):
            return None
        return row if (row["locked_by"], row["lease_epoch"]) == (lease.owner, lease.epoch) else None

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        refused = set()
        for each in settlements:  # all or none: the text of an error is kept as bytes elsewhere, and must have some
            if isinstance(each.outcome, Retry | Dead):
                each.outcome.error.encode()
        with self._rows.lock:
            for lease, outcome in ((each.lease, each.outcome) for each in settlements):
                row = self._held(lease)
                if row is None:
                    refused.add(lease.key)
                elif isinstance(outcome, Done) and self._deletes:
                    self._rows.drop([row])
                else:
                    row |= FREE | changes_of(row, outcome)
        return refused

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        with self._rows.lock:
            held = {lease.key: row for lease in leases if (row := self._held(lease)) is not None}
            for row in held.values():
                row["lease_until"] = now() + lock_timeout // MICRO
            return held.keys()

    async def mark_suspect(self, lease: Lease, count: int = 1) -> bool:
        with self._rows.lock:
            row = self._held(lease)
            if row is not None:
                row["abandoned"] += count
            return row is not None

    def is_row_fault(self, error: Exception) -> bool:
        return isinstance(error, UnicodeError)


class DictRecords:
    """The dict as people look at it."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def _dead(self, where: DeadFilter = EVERY) -> list[Row]:
        return self._rows.where(
            lambda row: (
                row["status"] == 3
                and where.event_type in (None, row["event_type"])
                and where.aggregate_type in (None, row["aggregate_type"])
            )
        )

    def _dead_of(self, event_id: str, handler_id: str | None) -> list[Row]:
        return [row for row in self._dead() if row["event_id"] == event_id and handler_id in (None, row["handler_id"])]

    async def query_dead(self, where: DeadFilter, limit: int) -> list[DeadEvent]:
        return [dead_of(row) for row in self._dead(where)[:limit]]

    async def count_dead(self, where: DeadFilter) -> int:
        return len(self._dead(where))

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return self._again(self._dead_of(event_id, handler_id))

    def _again(self, rows: list[Row]) -> int:
        for row in rows:
            row |= {**ANEW, "available_at": now(), "lease_epoch": row["lease_epoch"] + 1}
        return len(rows)

    async def replay_after(self, where: DeadFilter, position: int, limit: int) -> tuple[int, int | None]:
        rows = [row for row in self._dead(where) if row["position"] > position][:limit]
        return self._again(rows), rows[-1]["position"] if len(rows) == limit else None

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        rows = self._dead_of(event_id, handler_id)
        for row in rows:
            error = storable(f"discarded: {reason}" if reason else "discarded")
            row |= {"status": 1, "done_at": now(), "last_error": error, "lease_epoch": row["lease_epoch"] + 1}
        return len(rows)

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        before = now() - older_than // MICRO
        for_good = self._rows.where(lambda row: row["status"] in ((1, 3) if dead else (1,)))
        old = sorted((row for row in for_good if ended(row) < before), key=lambda row: (row["status"], ended(row)))
        return self._rows.drop(old[:limit])

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        before = now() - older_than // MICRO
        return self._rows.drop([row for row in self._rows.where(bool)[:limit] if row["created_at"] < before])

    async def backlog(self) -> Backlog:
        at, rows = now(), self._rows.where(lambda row: row["status"] in (0, 2))
        leased = [row for row in rows if row["locked_by"] is not None and row["lease_until"] > at]
        oldest = max((at - row["available_at"] for row in rows if row["available_at"] <= at), default=0)
        new = [row for row in rows if row["status"] == 0]
        return Backlog(len(new), len(rows) - len(new), len(self._dead()), len(leased), oldest * MICRO)

    async def blocked(self, limit: int) -> list[BlockedKey]:
        raise NotImplementedError


# ---------------------------------------------------------------- rows


def place(row: Row) -> tuple[int, int]:
    return row["available_at"], row["position"]


def ended(row: Row) -> int:
    return int(row["created_at"] if row["done_at"] is None else row["done_at"])


def instant(micros: int) -> datetime:
    return EPOCH + micros * MICRO


def micros(value: datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // MICRO


def row_of(new: NewEvent) -> Row:
    event, at = new.event, now()
    is_text, is_leased = isinstance(event.payload, str), new.owner is not None
    delay = 0 if event.deliver_after is None else event.deliver_after // MICRO
    given = None if event.deliver_after is not None else micros(event.available_at)
    return {
        "position": None, "event_id": event.event_id, "handler_id": new.handler_id, "event_type": event.event_type,
        "aggregate_type": event.aggregate_type, "aggregate_id": event.aggregate_id, "tenant_id": event.tenant_id,
        "event_key": event.key, "partition_no": new.partition, "content_type": event.content_type,
        "payload": event.payload if is_text else None, "payload_bytes": None if is_text else event.payload,
        "payload_version": event.payload_version, "headers": encode_headers(event.headers) if event.headers else None,
        "done_handlers": None, "status": 0, "attempts": 0, "abandoned": 0, "occurred_at": micros(event.occurred_at),
        "scheduled_at": micros(event.available_at), "created_at": at, "done_at": None, "last_error": None,
        "available_at": at + delay if given is None else given, "locked_by": new.owner,
        "locked_at": at if is_leased else None, "lease_until": at + new.lock_timeout // MICRO if is_leased else None,
        "lease_epoch": int(is_leased),
    }  # fmt: skip


def event_of(row: Row) -> EventEnvelope:
    same = ("event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type", "payload_version")
    return EventEnvelope.restore(
        **{name: row[name] for name in same},
        key=row["event_key"],
        payload=row["payload_bytes"] if row["payload"] is None else row["payload"],
        occurred_at=instant(row["occurred_at"]),
        headers=decode_headers(row["headers"]),
        available_at=None if row["scheduled_at"] is None else instant(row["scheduled_at"]),
    )


def dead_of(row: Row) -> DeadEvent:
    try:
        headers = decode_headers(row["headers"])
    except UndecodableRow:
        headers = {}
    same = ("event_id", "handler_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "attempts")
    return DeadEvent(
        **{name: row[name] for name in same},
        key=row["event_key"],
        payload=row["payload_bytes"] if row["payload"] is None else row["payload"],
        headers=headers,
        last_error=row["last_error"] or "",
        created_at=instant(row["created_at"]),
        dead_at=None if row["done_at"] is None else instant(row["done_at"]),
        position=row["position"],
    )


def changes_of(row: Row, outcome: Outcome) -> Row:
    at = now()
    match outcome:
        case Done():
            return {"status": 1, "done_at": at, "last_error": None, "abandoned": 0}
        case Retry(delay, error, done):
            due = {"status": 2, "attempts": row["attempts"] + 1, "available_at": at + delay // MICRO}
            return {**due, "last_error": error, "abandoned": 0, **named(done)}
        case Defer(delay, done):
            return {"status": 2, "available_at": at + delay // MICRO, "abandoned": 0, **named(done)}
        case Dead(error, counted, done):
            over = {"status": 3, "attempts": row["attempts"] + counted, "done_at": at}
            return {**over, "last_error": error, "abandoned": 0, **named(done)}
        case Release(was_started, done, is_suspect, was_marked):
            abandoned = 0 if was_started else row["abandoned"] - was_marked
            nobody = {"locked_by": "", "lease_until": at} if is_suspect and not was_started else {}
            return {"abandoned": abandoned, "lease_epoch": row["lease_epoch"] + 1, **nobody, **named(done)}


def named(done: tuple[str, ...]) -> Row:
    return {"done_handlers": json.dumps(done)} if done else {}


#: `mypy tests/stores/dict_store.py` tells whether the port is all there.
IS_A_STORE: Callable[[Rows], EventStore] = DictStore
