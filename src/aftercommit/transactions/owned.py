"""A transaction that the outbox opened: begun, committed, rolled back; nested it is a savepoint. Colourless."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from aftercommit.errors import NotAwaited, NotInTransaction, TransactionEnded
from aftercommit.events.claims import QueryResult, RowKey
from aftercommit.events.redact import error_text
from aftercommit.ports import EventStore, OpenTransaction, Runtime
from aftercommit.runtime.process import here
from aftercommit.transactions import ambient
from aftercommit.transactions.callbacks import Callback, Level, Lost, run_all
from aftercommit.transactions.pending import PendingWrite

log = logging.getLogger("aftercommit.transactions")


class Root:
    """One transaction in the database and the blocks that are open in it, innermost last."""

    def __init__(self, opened: OpenTransaction, runtime: Runtime) -> None:
        self.opened = opened
        self.blocks: list[OwnedTransaction] = []
        self.savepoints = 0
        #: The raw connection was handed out, so rows may have been undone unseen.
        self.is_exposed = False
        self._who = runtime.identity
        self._opener = runtime.identity()
        #: In a forked child it is another one: the transaction is the parent's, and so is its connection.
        self.process = here.token

    def is_here(self) -> bool:
        return self._who() is self._opener and self.process is here.token

    @property
    def innermost(self) -> Level:
        """Where a row physically belongs now, whichever of the nested objects was used to write it."""
        return self.blocks[-1].level


#: Transactions of a parent process that a forked child has met.
_parents: list[Root] = []


class OwnedTransaction:
    """A transaction that the outbox opened. It belongs to the thread or task that began it."""

    observes_commit = True

    def __init__(
        self,
        outbox: object,
        store: EventStore,
        runtime: Callable[[], Runtime],
        *,
        commits_on_exit: bool = True,
    ) -> None:
        self.outbox = outbox
        self.level = Level()
        self._store = store
        self._runtime = runtime
        self._commits_on_exit = commits_on_exit
        self._root: Root | None = None
        self._ended: str | None = None

    # ------------------------------------------------------------ TxContext

    @property
    def tx(self) -> OpenTransaction:
        return self._live().opened

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    def is_here(self) -> bool:
        return self._root is not None and self._ended is None and self._root.is_here()

    def is_transaction_active(self) -> bool:
        return self.is_here() and self._live().opened.is_open

    def current_connection(self) -> Any:
        """The driver's connection, the same that business statements run on."""
        root = self._own()
        root.is_exposed = True
        return root.opened.connection

    @property
    def connection(self) -> Any:
        return self.current_connection()

    def after_commit(self, callback: Callback) -> None:
        """Call it once the whole transaction is committed, and only then."""
        self._live().innermost.on_commit.append(_callable(callback))

    def after_rollback(self, callback: Callback) -> None:
        """Call it once this part is rolled back, or when the outcome of the commit is unknown."""
        self._live().innermost.on_rollback.append(_callable(callback))

    def wrote(self, keys: Sequence[RowKey], lost: Lost) -> None:
        self._live().innermost.written.append((keys, lost))

    def track(self, pending: PendingWrite[Any]) -> None:
        self._live().innermost.pending.append(pending)

    # ------------------------------------------------------------ steering, colourless

    async def _begin(self) -> None:
        if self._root is not None:
            raise TransactionEnded("this transaction was begun before", fix="call outbox.transaction() for each block")
        outer = ambient.innermost(self.outbox, OwnedTransaction)
        if outer is None:
            if not self._store.is_ready:
                await self._store.open()
            root = Root(await self._store.begin(), self._runtime())
        else:
            root = outer._intact()
            root.savepoints += 1
            self.level.name = f"aftercommit_{root.savepoints}"
            await root.opened.savepoint(self.level.name)
        root.blocks.append(self)
        self._root = root

    async def _query(self, sql: str, parameters: Any = ()) -> QueryResult:
        return await self._intact().opened.query(sql, parameters)

    async def _commit(self) -> None:
        """Commit, or release the savepoint. Again is fine."""
        if self._ended == "committed":
            return
        root = self._own()
        self._refuse_open_blocks(root)
        try:
            if self.level.pending:
                self._refuse_unawaited()
            self._intact()
            await (self._commit_root(root) if len(root.blocks) == 1 else root.opened.release(self.level.name))
        except BaseException as error:
            await self._undo(root, error)
            raise
        self._end("committed")
        if root.blocks:
            root.innermost.absorb(self.level)
        else:
            run_all(self.level.on_commit)

    async def _commit_root(self, root: Root) -> None:
        """What was undone behind our back must not be delivered from memory."""
        if root.is_exposed and self.level.written:
            keys = [key for written, _ in self.level.written for key in written]
            surviving = await self._store.surviving(root.opened, keys)
            for written, lost in self.level.written:
                if gone := [key for key in written if key not in surviving]:
                    lost(gone)
        await root.opened.commit()

    async def _rollback(self) -> None:
        """Roll back, or back to the savepoint. Again is fine."""
        if self._ended != "rolled back":
            await self._undo(self._own())

    async def _undo(self, root: Root, cause: BaseException | None = None) -> None:
        """Give back this block and whatever is still open in it. The error that led here goes before all others."""
        undone = root.blocks[root.blocks.index(self) :]
        for block in undone:
            block._end("rolled back")
        try:
            await self._undo_rows(root)
        except Exception as error:
            if root.blocks and cause is None:
                raise
            log.warning("the rollback failed; the connection is given up: %s", error_text(error))
        finally:
            run_all((callback for block in undone for callback in block.level.on_rollback), beside=cause)

    async def _undo_rows(self, root: Root) -> None:
        if not root.blocks:
            await root.opened.end()
        elif root.opened.is_open:
            await root.opened.rollback_to(self.level.name)

    async def _leave(self, error: BaseException | None) -> None:
        if self._root is None or self._ended is not None:
            return
        if self._root.process is not here.token:
            _parents.append(self._root)  # never closed here: that could undo what the parent has locked
            self._end("left to the process that opened it")
            return
        if error is not None or not self._commits_on_exit:
            await self._undo(self._root, error)
            return
        try:
            await self._commit()
        except TransactionEnded as refusal:
            if self._ended is None:
                await self._undo(self._root, refusal)
            raise

    # ------------------------------------------------------------ looking

    def _live(self) -> Root:
        if self._root is None or self._ended is not None:
            state = "was not begun" if self._ended is None else f"has been {self._ended}"
            raise NotInTransaction(f"the transaction {state}", fix="with outbox.transaction() as tx: …")
        return self._root

    def _own(self) -> Root:
        """Live, and of this process."""
        root = self._live()
        if root.process is not here.token:
            raise NotInTransaction(
                "the transaction was opened by the process that this one was forked from",
                fix="open one in this process",
            )
        return root

    def _intact(self) -> Root:
        """Its own, and the database still has it: a statement after its end would be saved at once, by itself."""
        root = self._own()
        if not root.opened.is_open:
            raise TransactionEnded(
                "the transaction was ended on the connection itself, before the block did it",
                fix="use tx.commit() and tx.rollback(), and no statement that rolls back by itself",
            )
        return root

    def _refuse_open_blocks(self, root: Root) -> None:
        if root.blocks[-1] is not self:
            raise TransactionEnded(
                "a nested transaction is still open inside this one", fix="end the inner block first"
            )

    def _refuse_unawaited(self) -> None:
        if forgotten := [each for each in self.level.pending if not each.is_awaited or each.is_refused]:
            names = ", ".join(pending.what for pending in forgotten)
            raise NotAwaited(
                f"write() of {names} was never awaited, or in another task, so nothing of it is saved; the transaction "
                "is rolled back",
                fix="await outbox.write(…), in the task that opened the transaction",
            )

    def _end(self, how: str) -> None:
        self._ended = how
        if self._root is not None:
            self._root.blocks.remove(self)
        while self.level.pending:
            self.level.pending.pop().forgive()  # awaited, reported, or undone with its transaction
        ambient.leave(self)


def _callable(callback: Callback) -> Callback:
    if not callable(callback):
        raise TypeError(f"a callback is called without arguments; {callback!r} cannot be called")
    return callback
