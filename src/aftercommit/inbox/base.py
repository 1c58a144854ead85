"""What both colours of the inbox share: the table, the transaction that a block joins, and the block itself."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID
from weakref import WeakSet

from aftercommit.base import OutboxBase
from aftercommit.errors import (
    ColourMismatch,
    InvalidName,
    InvalidOption,
    NotInTransaction,
    UnknownStore,
    UnsupportedTransaction,
)
from aftercommit.events.durations import Duration, duration
from aftercommit.events.names import name_of, shown, text_of
from aftercommit.inbox.blocks import Block, DriverBlock
from aftercommit.inbox.store import InboxStore, Receipt
from aftercommit.ports import Colour, Runtime
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql.store import SqlStore
from aftercommit.transactions.by_hand import ByHand
from aftercommit.transactions.joined import is_of_sqlalchemy
from aftercommit.transactions.owned import OwnedTransaction, has_any

#: What identifies a message to its consumer.
MessageId = str | bytes | int | UUID


@dataclass(frozen=True, slots=True)
class First:
    """What `once()` gives: true for whoever has the message for the first time."""

    message_id: str
    consumer: str
    is_first: bool
    #: The transaction that the id is part of: as it was given, or the one that `once()` has opened.
    tx: Any = field(repr=False)

    def __bool__(self) -> bool:
        return self.is_first


class InboxBase(ABC):
    """Made from a target, as an outbox is; or from the outbox of the same database."""

    _colour: ClassVar[Colour]

    def __init__(
        self,
        target: Any,
        *,
        table: str = "inbox",
        schema: str | None = None,
        create_schema: bool | None = None,
        retention: Duration | None = None,
    ) -> None:
        self._outbox: Any = target if isinstance(target, OutboxBase) else None
        self._retention = None if retention is None else duration(retention, name="retention")
        store = open_store(target, self._colour) if self._outbox is None else self._outbox._store
        if not isinstance(store, SqlStore):
            raise UnknownStore(
                f"{store!r} runs no SQL, so no id can be saved in one transaction with what a consumer does",
                fix="give the inbox the SQL database that the consumer works on",
            )
        if store.colour is not self._colour:
            raise ColourMismatch(
                f"{type(self).__name__} is {self._colour.value}, {store!r} is {store.colour.value}",
                fix="use Inbox with blocking drivers and AsyncInbox with async ones",
            )
        self._store = InboxStore(store, table=table, schema=schema, create_schema=create_schema)
        if self._outbox is None:  # else it is the outbox's to look after them
            _living.add(self)

    def schema_sql(self) -> str:
        """The script that makes the table, for people who run their own migrations. It may be run again."""
        return self._store.schema_sql()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store.where})"

    # ------------------------------------------------------------ inside

    @abstractmethod
    def _runtime(self) -> Runtime: ...

    @abstractmethod
    def _own_block(self, transaction: Any, theirs: SqlStore | None = None) -> Block:
        """A block that is a transaction of an outbox or inbox: the outermost, or a part of another."""

    @abstractmethod
    def _transaction(self) -> Any: ...

    @property
    def _owner(self) -> Any:
        """Whose transactions are found around the running code."""
        return self if self._outbox is None else self._outbox

    def _block(self, tx: Any) -> Block:
        if tx is None:
            return self._own_block(self._transaction())
        if isinstance(tx, ByHand):
            tx = tx.transaction
        if isinstance(tx, OwnedTransaction):
            return self._part_of(tx)
        if is_of_sqlalchemy(tx):
            from aftercommit.inbox.sqlalchemy_block import SqlAlchemyBlock  # noqa: PLC0415  (whoever has one has it)

            return SqlAlchemyBlock(self._store, tx)
        return DriverBlock(self._store, tx)

    def _part_of(self, tx: OwnedTransaction) -> Block:
        if not tx.is_here():
            raise NotInTransaction(
                "the transaction has ended, or was opened by another thread or task",
                fix="use it inside its block, in the thread or task that opened it",
            )
        opener: Any = tx.outbox
        if opener is self._owner:
            return self._own_block(opener.transaction())
        theirs = opener._store
        if not self._store.speaks_as(theirs):
            raise UnsupportedTransaction(
                f"tx is of {opener!r}, whose driver is another than that of the inbox in {self._store.where}",
                fix="make the inbox with that outbox: Inbox(outbox)",
            )
        return self._own_block(opener.transaction(), theirs)

    async def _make_ready(self, tx: Any) -> None:
        """The table is made or looked at beside the transaction, unless that would wait for it."""
        if not self._store.is_ready and not (self._store.is_sqlite and (tx is not None or has_any(self._owner))):
            await self._store.open()

    async def _purge(self, older_than: Duration | None) -> int:
        age = self._retention if older_than is None else duration(older_than, name="older_than")
        if age is None:
            raise InvalidOption(
                "purge() was called without older_than, and the inbox has no retention",
                fix='Inbox(…, retention="7d"), or inbox.purge(older_than="7d")',
            )
        return await self._store.purge(age)

    def _after_fork(self) -> None:
        self._store.abandon()


def receipt_of(message_id: MessageId, consumer: str) -> Receipt:
    """The two names, checked."""
    if isinstance(message_id, bytes | bytearray | memoryview):
        message_id = _decoded(bytes(message_id))
    return Receipt(name_of(consumer, "consumer", 128), text_of(message_id, "message_id", 255))


def _decoded(message_id: bytes) -> str:
    try:
        return message_id.decode()
    except UnicodeDecodeError:
        raise InvalidName(
            f"message_id is {shown(message_id)}, which is no UTF-8",
            fix="pass its hexadecimal form, message_id.hex(), or a UUID",
        ) from None


class OnceBase:
    """One message at one consumer: its id is saved with what the block does, or not at all."""

    def __init__(self, inbox: InboxBase, receipt: Receipt, tx: Any) -> None:
        self._inbox = inbox
        self._receipt = receipt
        self._tx = tx
        self._block: Block | None = None

    async def _enter(self) -> First:
        block = self._inbox._block(self._tx)
        block.refuse()
        await self._inbox._make_ready(self._tx)
        is_first = await block.enter(self._receipt)
        self._block = block
        return First(self._receipt.message_id, self._receipt.consumer, is_first, block.tx)

    async def _leave(self, error: BaseException | None) -> None:
        block, self._block = self._block, None
        if block is not None:
            await block.leave(error)


_living: Final[WeakSet[InboxBase]] = WeakSet()


def _after_fork_in_child() -> None:
    for inbox in list(_living):
        inbox._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
