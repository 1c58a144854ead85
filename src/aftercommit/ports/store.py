"""A store of events and the fleet beside it, as the walk and the façade see them, whatever lies behind them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from aftercommit.errors import InvalidOption, OutboxError
from aftercommit.events.claims import Claim, ClaimRequest, Inserted, Lease, NewEvent, RowKey, Settlement
from aftercommit.events.findings import Finding, LeaseHolder, Waiting
from aftercommit.events.order import FleetView, Heads, HeadsRequest, Instance, KeyClaimRequest, Order
from aftercommit.ports.pauses import Pauses
from aftercommit.ports.records import Records
from aftercommit.ports.replication import Replication
from aftercommit.ports.runtime import Colour
from aftercommit.ports.schema import SchemaStatus
from aftercommit.ports.sql_table import SqlTable
from aftercommit.ports.transactions import AdoptedTx, OpenTransaction, Tx


class Capabilities(msgspec.Struct, frozen=True):
    """What a store can do. What it cannot is refused when the outbox is built, or when somebody asks for it."""

    #: An event is written in a transaction, which saves it together with the caller's own change.
    needs_transaction: bool = True
    #: A transaction of the store's can be rolled back in part.
    has_savepoints: bool = True
    #: The levels of isolation that `begin` can be asked for, in capitals.
    isolations: tuple[str, ...] = ()
    #: Transactions that write the same key wait for each other.
    serializes_keys: bool = False
    #: `heads` and `claim_keys` claim key by key, in order of position.
    keeps_order: bool = False
    #: `insert` leases an event with a key only when nothing of that key is unfinished, and tells what it left free.
    leases_firsts: bool = False
    #: `wakeups` carries messages between processes.
    wakes_others: bool = False
    #: `insert_unique` keeps events apart that have a unique key.
    unique_keys: bool = False
    #: A transaction of the store's own collects commands of the user's, which are called on it by their names.
    takes_commands: bool = False
    #: What a handler changes can be committed together with the outcome of its event, by `settle_in`.
    has_transactional_effects: bool = False

    def level(self, isolation: str, where: str) -> str:
        """One of `isolations` as it was asked for, in whatever letters."""
        level = isolation.upper().replace("_", " ")
        if level not in self.isolations:
            raise InvalidOption(
                f"isolation is {isolation!r}, which transactions of {where} cannot be asked for",
                fix=" or ".join(["leave it out", *(f"isolation={each!r}" for each in self.isolations)]),
            )
        return level


class Transactional(Protocol):
    """What a transaction that the user steers needs of a store, be it one of events or not."""

    colour: Colour

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def where(self) -> str: ...

    @property
    def is_ready(self) -> bool: ...

    async def open(self) -> None: ...

    async def begin(self, isolation: str | None = None) -> OpenTransaction: ...

    def outage(self, error: Exception) -> OutboxError | None: ...

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]: ...


class EventStore(Protocol):
    """The table of events.

    Every method but `insert`, `insert_unique`, `surviving` and `settle_in` runs in a transaction of its own that is
    committed when it returns. `settle`, `settle_in`, `renew` and `mark_suspect` change a row only where owner and epoch
    of the lease still stand on it, and raise nothing when they do not.
    """

    colour: Colour

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def requires_active_transaction(self) -> bool:
        """Whether a write outside a transaction is refused: what `capabilities.needs_transaction` says, by the name
        that the specification has for it."""

    @property
    def where(self) -> str:
        """The database as people may read of it: no login, no secrets."""

    @property
    def order(self) -> Order:
        """What this store's table says of the order of its events."""

    @property
    def warnings(self) -> Sequence[str]:
        """What people should know of how the database keeps what it is given, once it was opened."""

    @property
    def records(self) -> Records: ...

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What `outbox.diagnose()` asks; None where the store has nothing to say of itself."""

    @property
    def pauses(self) -> Pauses | None:
        """What is paused over the fleet; None where nothing can be."""

    @property
    def membership(self) -> Membership | None:
        """The fleet; None where every process looks after all partitions."""

    @property
    def wakeups(self) -> Wakeups | None:
        """A way to wake other processes, a new one for each who asks; None where there is none."""

    @property
    def replication(self) -> Replication | None:
        """The slot from which the rows of the table are read; None where there is none. Only asked where the option
        `replication` was given."""

    @property
    def sql_table(self) -> SqlTable | None:
        """For libraries that insert rows in their own way; None where they cannot."""

    # ------------------------------------------------------------ life

    @property
    def is_ready(self) -> bool:
        """Whether `open` has succeeded."""

    async def open(self) -> None:
        """Make sure that the table is there and fits this release. Idempotent."""

    async def create_schema(self) -> None:
        """Create or upgrade the tables now. A store that has none does nothing."""

    async def schema_status(self) -> SchemaStatus:
        """What is there of the tables. Changes nothing, and needs no `open`."""

    def schema_sql(self, from_version: int = 0, to_version: int | None = None) -> str:
        """The script from one version of the tables to another: from 0, which is none, to this release's. Raises
        InvalidOption for versions that there are not, and where nothing is made by scripts."""

    async def close(self) -> None:
        """Give up connections; the next use opens new ones."""

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""

    # ------------------------------------------------------------ writing

    async def begin(self, isolation: str | None = None) -> OpenTransaction:
        """A transaction that the user steers, on a connection of the store's: in one of the levels that the store
        says it has, else as the connection's own transactions begin."""

    def outage(self, error: Exception) -> OutboxError | None:
        """Our own word for an error of a user's statement or commit that is about the database as a whole: it is away,
        or full. None for all others, which are between the user and the driver."""

    def adopt(self, handle: object) -> AdoptedTx | None:
        """The transaction of a caller's own connection; None when it is no connection that this store, in its colour,
        can write on."""

    async def refuse_foreign(self, handle: object, tx: AdoptedTx) -> None:
        """Raise UnsupportedTransaction, with both databases in its text, when an adopted connection leads to another
        database than this store's. The caller's transaction goes on either way."""

    async def insert(self, tx: Tx, events: Sequence[NewEvent]) -> Collection[RowKey] | None:
        """Write rows in the caller's transaction, in order. Raises before it writes or writes all. The rows that are
        free, where it has found out by itself whether they may be leased; None: each is as it was asked for."""

    async def insert_unique(self, tx: Tx, events: Sequence[NewEvent]) -> Inserted:
        """`insert` where some events have a unique key, each of them in one row: such a row is not written while
        another one with its key is NEW or RETRY, be it one of these. Another transaction that wrote such a row and goes
        on is waited for. Only where unique keys are kept."""

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]:
        """Which of these rows the open transaction still has."""

    # ------------------------------------------------------------ delivering

    async def claim(self, request: ClaimRequest) -> Claim:
        """Lease up to `limit` rows that are due and free, or whose lease has passed. Raises the epoch of each."""

    async def heads(self, request: HeadsRequest) -> Heads:
        """Walk the heads of keys without leasing anything, one probe for each, `limit` of them at most. Only where
        order is kept."""

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        """Lease the runs of keys. A row is leased only when every earlier unfinished row of its key is leased by the
        same claim, as the rule says; whatever another transaction has locked ends the run. Raises the epoch of each.
        Only where order is kept."""

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        """Write outcomes, all or none, and clear the leases. Returns the rows that the fence refused."""

    async def settle_in(self, tx: Tx, lease: Lease, done_handlers: tuple[str, ...] = ()) -> bool:
        """Write as a part of an open transaction that an event is done, and clear its lease; or, of a row that serves
        several handlers, that these are done with it, and keep the lease. False when the fence refuses it. Only where
        `has_transactional_effects`."""

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        """Prolong leases from now on. Returns the rows that were renewed."""

    async def mark_suspect(self, lease: Lease, count: int = 1) -> bool:
        """Count one more delivery that begins as a suspect; or, by -1, take it back. False when the lease is lost."""

    def is_row_fault(self, error: Exception) -> bool:
        """Whether a failed `settle` should be tried again row by row (a data error, a lock wait)."""


class Diagnosis(Protocol):
    """How the database is set up, and what of the table only somebody who looks for trouble wants to know. Nothing here
    changes anything: not the schema, not even where the outbox makes it on first use."""

    async def findings(self) -> Sequence[Finding]:
        """What the database itself gives reason to say. Begins with AC100, whether it can be reached, and AC101,
        whether the schema fits; raises nothing."""

    async def holders(self, over_for: timedelta) -> Sequence[LeaseHolder]:
        """Who holds leases. `over` counts those that ended longer ago than that."""

    async def waiting(self, limit: int) -> Sequence[Waiting]:
        """Whom unfinished rows wait for, the most first. May look at a part of them where there are many."""

    async def count_done_before(self, older_than: timedelta, limit: int) -> int:
        """How many done rows ended longer ago than that, counted no further than `limit`."""


# ---------------------------------------------------------------- the fleet


class Membership(Protocol):
    """The fleet in the database. All times are the database's; every method is one transaction."""

    async def join(self, instance: Instance) -> None:
        """Sign on; again is fine."""

    async def beat(self, instance_id: str, lasts: timedelta) -> dict[int, int] | None:
        """Be heard, and prolong what is owned, from now on, by `lasts`: the partitions that still are this instance's,
        with their epochs. None when the instance has no row any more and must join again."""

    async def view(self) -> FleetView: ...

    async def take(self, instance_id: str, partitions: dict[int, int], lasts: timedelta) -> dict[int, int]:
        """Own partitions that nobody owns or whose time is over, where the epoch is still the one that was seen. What
        was taken, with the new epochs, each raised by one; others may have been faster for the rest."""

    async def give(self, instance_id: str, partitions: dict[int, int]) -> None:
        """Own these no more, where owner and epoch still stand. Raises the epochs."""

    async def leave(self, instance_id: str) -> None:
        """Sign off: own nothing, be no member. Again is fine."""

    async def bury(self, silent_for: timedelta, *, but: str) -> list[str]:
        """Remove members that were silent for longer than that, whatever they own, all but one; who they were."""

    async def lags(self) -> dict[int, timedelta]:
        """The age of the oldest unfinished event of each partition that has one."""

    async def hold(self, duty: str, mine: str, *, over: str) -> str:
        """Write `mine` under the name of a duty if `over` stands there ('': nothing has, or it was given up); what
        stands there afterwards. Of several who write over the same only one finds its own. At most 200 characters."""


class WakeupsUnavailable(Exception):
    """No messages can be received here, and why. It stays so; what they would have saved is done by looking."""


class Wakeups(Protocol):
    """Short messages between the processes of a fleet. Any may be lost; they only save waiting."""

    async def send(self, message: str) -> None:
        """On a connection of its own, never in a caller's transaction."""

    async def receive(self) -> list[str]:
        """Wait for messages. Nothing, when it was interrupted, and when it has only now begun to listen: what was said
        before was missed. Raises when the connection is broken, and the next call opens another; WakeupsUnavailable
        when no call ever will."""

    def interrupt(self) -> None:
        """Let the `receive` that waits return, or else the next one. From any thread."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""
