"""A block inside a transaction of the caller's: a part of it that can be undone alone. Colourless."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import Any, Final, Protocol

from aftercommit.errors import NotInTransaction, TransactionEnded, UnsupportedTransaction
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.inbox.store import InboxStore, Receipt
from aftercommit.ports import AdoptedTx

log = Log("aftercommit.inbox")

#: What the statements call every savepoint. Blocks may be nested, and not every database keeps two of one name apart.
_SAVEPOINT: Final = "aftercommit_inbox"

_numbers: Final = count(1)


class Block(Protocol):
    """Where the id of a message is recorded: part of a transaction that goes on, or one of its own."""

    @property
    def tx(self) -> Any:
        """The transaction as the consumer may use it."""

    def refuse(self) -> None:
        """Raise NotInTransaction, before anything is changed, where what follows would be saved by itself."""

    async def enter(self, receipt: Receipt) -> bool:
        """Begin the block and record the message in it; whether it is the first time. Raises with the block undone."""

    async def leave(self, error: BaseException | None) -> None:
        """End it, and keep what was done in it, or undo it after an error."""


class DriverBlock:
    """Behind a savepoint on the caller's own connection."""

    def __init__(self, store: InboxStore, handle: object) -> None:
        adopted = store.adopt(handle)
        if adopted is None:
            raise UnsupportedTransaction(
                f"tx is a {type(handle).__module__}.{type(handle).__qualname__}",
                fix="pass a session or connection of the inbox's own database, or what transaction() gave",
            )
        self.tx = handle
        self._store = store
        self._tx: AdoptedTx = adopted
        self._savepoint = f"{_SAVEPOINT}_{next(_numbers)}"

    def refuse(self) -> None:
        if not self._tx.is_active:
            raise not_in_transaction()

    async def enter(self, receipt: Receipt) -> bool:
        if "begin" in self._store.sql and not self._tx.is_begun:
            await self._tx.fetch(self._store.sql["begin"].sql)
        await self._say("savepoint")
        try:
            # What a pool of asyncpg lends is new each time; what it stands for stays.
            await self._store.refuse_foreign(getattr(self.tx, "_con", None) or self.tx, self._tx)
            return await self._store.record(self._tx, receipt)
        except BaseException:
            await self._undo()
            raise

    async def leave(self, error: BaseException | None) -> None:
        if not self._tx.is_begun:
            if error is None:
                raise ended()
            return  # and nothing of it is left
        if error is not None:
            await self._undo()
            return
        try:
            await self._say("release")
        except Exception as refusal:
            await self._undo()
            raise ended() from refusal

    async def _undo(self) -> None:
        """Back to where the block began; an error is on its way, and goes before all others."""
        try:
            await self._say("undo")
            await self._say("release")
        except Exception as error:
            log.warning("what a block has done cannot be undone alone: roll back all of it (%s)", error_text(error))

    async def _say(self, name: str) -> None:
        await self._tx.execute(self._store.sql[name].sql.replace(_SAVEPOINT, self._savepoint))


class OwnBlock(ABC):
    """A transaction of an outbox or of the inbox itself, which its colour begins and ends."""

    def __init__(self, store: InboxStore, transaction: Any, theirs: object = None) -> None:
        """`theirs` is the store of another outbox that the transaction is part of."""
        self.tx = transaction
        self._store = store
        self._theirs = theirs

    def refuse(self) -> None:
        """It begins by itself."""
        return

    async def enter(self, receipt: Receipt) -> bool:
        await self._begin()
        try:
            if self._theirs is not None:
                await self._store.refuse_foreign(self._theirs, self.tx.tx)
            return await self._store.record(self.tx.tx, receipt)
        except BaseException as error:
            await self._end(error)
            raise

    async def leave(self, error: BaseException | None) -> None:
        await self._end(error)

    @abstractmethod
    async def _begin(self) -> None: ...

    @abstractmethod
    async def _end(self, error: BaseException | None) -> None: ...


def not_in_transaction() -> NotInTransaction:
    return NotInTransaction(
        "tx is in no transaction, or in one that has failed, so the id could be saved without your change",
        fix="begin a transaction on it first, or leave tx out: with inbox.once(…) as first: first.tx.execute(…)",
    )


def ended() -> TransactionEnded:
    return TransactionEnded(
        "the transaction was ended inside the block, or a statement in it had failed, so the id of the message is not "
        "known to be saved with what the block did",
        fix="commit after the block, and let errors of statements leave it",
    )
