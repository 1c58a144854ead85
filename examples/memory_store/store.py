"""A store of events over a dict: all that an outbox asks of one that keeps no order and has no fleet.

    outbox = Outbox(MemoryStore(Rows()))

It forgets everything with its process. docs/writing-a-store.md walks through it, and it passes the core of the suite
that every store passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from aftercommit.errors import InvalidOption, UnsupportedTransaction
from aftercommit.events.claims import Claim, Claimed, ClaimRequest, Lease, NewEvent, RowKey, Settlement, Undecodable
from aftercommit.events.columns import CLAIMED
from aftercommit.events.order import UNORDERED, Heads, HeadsRequest, KeyClaimRequest
from aftercommit.events.outcome import Dead, Done, Outcome, Retry
from aftercommit.ports import AdoptedTx, Capabilities, Colour, EventStore, SchemaStatus
from aftercommit.stores.sql.rows import IN_MICROS, claimed_of, instant
from examples.memory_store.records import MemoryRecords
from examples.memory_store.rows import FREE, MICRO, NEW, Row, Rows, changes_of, now, row_of
from examples.memory_store.transaction import Transaction


class MemoryStore:
    """Events in a dict: what the outbox writes, claims and settles."""

    colour = Colour.BLOCKING  # awaiting it never suspends
    capabilities = Capabilities()  # in transactions, with savepoints, and nothing more
    requires_active_transaction = capabilities.needs_transaction
    where = "a dict"
    order = UNORDERED
    diagnosis = membership = pauses = wakeups = sql_table = replication = None
    warnings = ()
    is_ready = True

    def __init__(self, rows: Rows, *, delete_completed: bool = False) -> None:
        self._rows = rows
        self._deletes = delete_completed
        self.records = MemoryRecords(rows, deletes=delete_completed)

    # ------------------------------------------------------------ life: a dict is there

    async def open(self) -> None: ...

    async def create_schema(self) -> None: ...

    async def schema_status(self) -> SchemaStatus:
        return SchemaStatus(version=1, needed=1)

    def schema_sql(self, from_version: int = 0, to_version: int | None = None) -> str:
        raise InvalidOption("events in memory need no tables", fix="nothing")

    async def close(self) -> None: ...

    def abandon(self) -> None: ...

    def outage(self, error: Exception) -> None: ...

    # ------------------------------------------------------------ writing

    async def begin(self, isolation: str | None = None) -> Transaction:
        return Transaction(self._rows)

    def adopt(self, handle: object) -> AdoptedTx | None:
        return None  # nobody else's transaction leads here

    async def refuse_foreign(self, handle: object, tx: AdoptedTx) -> None: ...

    async def insert(self, tx: Any, events: Sequence[NewEvent]) -> None:
        written = {RowKey(each.event.event_id, each.handler_id): row_of(each) for each in events}
        with self._rows.lock:
            if len(written) < len(events) or written.keys() & (tx.written.keys() | self._rows.by_key.keys()):
                raise ValueError("duplicate event")
            tx.written |= written

    async def insert_unique(self, tx: Any, events: Sequence[NewEvent]) -> NoReturn:
        raise NotImplementedError  # its capabilities say so

    async def surviving(self, tx: Any, keys: Sequence[RowKey]) -> Collection[RowKey]:
        return {key for key in keys if key in tx.written or key in self._rows.by_key}

    # ------------------------------------------------------------ delivering

    async def claim(self, request: ClaimRequest) -> Claim:
        """What is due and free; the floor is the place of the last row of a claim that left some behind."""
        if not request.owner:
            raise InvalidOption("a claim has no owner", fix="pass the owner's id")
        with self._rows.lock:
            at, floor = now(), request.floor if isinstance(request.floor, tuple) else (-(2**62), -1)
            latest = at - request.skip_recent // MICRO
            pending = self._rows.where(lambda row: row["status"] in (0, 2))
            free = [row for row in pending if row["locked_by"] is None or row["lease_until"] <= at]
            due = sorted(place(row) for row in free if row["available_at"] <= at and row["created_at"] <= latest)
            taken = [each for each in due if each > floor][: request.limit]
            is_full = 0 < request.limit <= len(taken)
            later = [row["available_at"] - at for row in pending if row["available_at"] > at]
            next_due = None if is_full or not later else min(later) / 1e6
            positions = {position for _, position in taken}
            rows = [self._leased(row, request, at) for row in pending if row["position"] in positions]
            return Claim(rows, taken[-1] if is_full else None, next_due)

    def _leased(self, row: Row, request: ClaimRequest, at: int) -> Claimed | Undecodable:
        """Whoever takes a row from another holder takes a suspect: it may be what ended that holder."""
        is_takeover = row["locked_by"] not in (None, request.owner)
        cells = [*(row[column.name] for column in CLAIMED), row["lease_epoch"], is_takeover, at]
        until = at + request.lock_timeout // MICRO
        row |= {"locked_by": request.owner, "locked_at": at, "lease_until": until, "lease_epoch": cells[-3] + 1}
        return claimed_of(cells, request, IN_MICROS, instant(at))

    def _held(self, lease: Lease) -> Row | None:
        """The fence: the row, where owner and epoch are still those of the lease, and it has not ended."""
        row = self._rows.by_key.get(lease.key, NEW)
        is_held = (row["locked_by"], row.get("lease_epoch")) == (lease.owner, lease.epoch) and row["status"] in (0, 2)
        return row if is_held else None

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        for each in settlements:  # all or none: a text that cannot be kept is found before anything is changed
            if isinstance(each.outcome, Retry | Dead):
                each.outcome.error.encode()
        with self._rows.lock:
            return {each.lease.key for each in settlements if not self._settled(each.lease, each.outcome)}

    def _settled(self, lease: Lease, outcome: Outcome) -> bool:
        row = self._held(lease)
        if row is not None and isinstance(outcome, Done) and self._deletes:
            self._rows.drop([row])
        elif row is not None:
            row |= FREE | changes_of(row, outcome)
            if isinstance(outcome, Retry | Dead) and outcome.failures:
                self._rows.note(lease, outcome.failures)
        return row is not None

    async def settle_in(self, tx: Any, lease: Lease, done_handlers: tuple[str, ...] = ()) -> NoReturn:
        raise NotImplementedError("its transactions hold nothing of a handler's; capabilities say so")

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

    async def heads(self, request: HeadsRequest) -> Heads:
        refuse_order()

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        refuse_order()


def place(row: Row) -> tuple[int, int]:
    return row["available_at"], row["position"]


def refuse_order() -> NoReturn:
    raise UnsupportedTransaction("this store keeps no order", fix="do without ordered=True, or take another store")


#: `mypy examples/memory_store/store.py` tells whether the port is all there.
IS_A_STORE: Callable[[Rows], EventStore] = MemoryStore
