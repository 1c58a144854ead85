"""What a database tells of committed rows, in the order of their commits, to one who reads at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from aftercommit.errors import OutboxError
from aftercommit.events.claims import Claimed, Lease, RowKey, Undecodable
from aftercommit.events.order import OrderKey


class SlotState(msgspec.Struct, frozen=True):
    """A replication slot as the server sees it. Places in the log are numbers of bytes."""

    #: It is there, and the server still has what it has not read.
    is_there: bool
    #: The server has thrown away what it had not read, or it belongs to another database or plug-in: why it is no use.
    problem: str | None
    #: It is not this outbox's at all.
    is_foreign: bool
    #: Somebody is reading it, or has its lock.
    is_read: bool
    #: Up to here everything is delivered.
    confirmed: int
    #: Up to here there is something to read.
    end: int
    #: What the server keeps of its log for it.
    kept: int
    has_publication: bool
    #: Rows are born done because of it.
    is_capturing: bool
    now: datetime

    @property
    def behind(self) -> int:
        return max(0, self.end - self.confirmed) if self.is_there else 0


class Began(NamedTuple):
    """The rows of a transaction follow."""

    commit_at: int
    committed_at: datetime


class Wrote(NamedTuple):
    """A row that was written in it."""

    key: RowKey
    row: Claimed | Undecodable
    #: It is the reader's to deliver; others are born free, or leased, and are left to the table.
    is_captured: bool
    #: As the table had it, to be written again should it be gone.
    values: Mapping[str, str | None]
    #: When it falls due, where the table has it.
    available_at: datetime | None = None


class Ended(NamedTuple):
    """The transaction is over; whoever has delivered all of it goes on from `ends_at`."""

    ends_at: int
    committed_at: datetime


Change = Began | Wrote | Ended


class Mark(NamedTuple):
    """What is known of a slot beside the slot, which a crash of the server may set back."""

    confirmed: int
    #: So many changes behind that are delivered, too: of a transaction that is not through.
    passed: int
    #: When the last transaction was committed that is delivered.
    committed_at: datetime | None
    #: Who reads; None: nobody, and whoever did has said good-bye.
    reader: str | None = None
    #: So many rows behind them this reader may have begun.
    in_flight: int = 0


class Reading(Protocol):
    """A session that has the lock of the slot: nobody else reads it meanwhile. Every method may raise what the driver
    raises; then the session is over, and so is the lock."""

    async def state(self) -> SlotState: ...

    async def end(self) -> int:
        """Up to here there is something to read."""

    async def peek(self, skip: int, limit: int, owner: str) -> tuple[Sequence[Change], bool]:
        """The next changes behind `skip` of those that are not confirmed, at most `limit` and a bounded number of
        bytes; and whether that was all there is. Rows are leased to `owner` in name only, under the epoch 1."""

    async def advance(self, place: int, mark: Mark | None) -> None:
        """Everything up to there is delivered; with a mark of it beside the slot."""

    async def mark(self) -> Mark | None:
        """What is known of this slot on this server; None when that is nothing."""

    async def set_mark(self, mark: Mark) -> None: ...

    async def close(self) -> None: ...


class Replication(Protocol):
    """The slot of one table's rows."""

    @property
    def slot(self) -> str: ...

    async def create(self) -> None:
        """Publication, slot, and what makes rows be born done, whatever of it is not there."""

    async def drop(self) -> int:
        """Take all of it away; what was not read is NEW in the table. How many rows that were."""

    async def recover(self, since: datetime | None) -> int:
        """Begin anew after the slot was lost: what was written since then is NEW in the table. How many rows."""

    async def state(self) -> SlotState: ...

    def trouble(self, state: SlotState) -> OutboxError | None:
        """Why the slot cannot be read."""

    async def read(self) -> Reading | None:
        """The lock of the slot, with a session for it; None while somebody else has it."""

    async def take(
        self, rows: Sequence[tuple[Lease, Mapping[str, str | None]]], lease_for: timedelta
    ) -> Collection[RowKey]:
        """Turn rows that nobody has touched since they were born done into NEW ones, leased under the epoch 1, or free
        where the owner is ''; those that are gone are written again. The rows that were turned, and those that these
        leases are on by now."""

    async def touched(self, keys: Sequence[RowKey]) -> Collection[RowKey]:
        """Those that were delivered or changed by other ways since they were born done."""

    async def blocked(self, keys: Collection[OrderKey], *, by_dead: bool) -> Mapping[OrderKey, int]:
        """Those of these keys that have unfinished rows in the table, each with the position of the first."""
