"""outbox.transaction(): begins, commits, rolls back; nested it is a savepoint. Written once, shown in two colours."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from aftercommit.claims import QueryResult, RowKey
from aftercommit.errors import NotAwaited, NotInTransaction, TransactionEnded
from aftercommit.ports import EventStore, Executor, OpenTransaction, Runtime
from aftercommit.redact import error_text
from aftercommit.runtime.threads import run
from aftercommit.transactions import ambient
from aftercommit.transactions.callbacks import Callback, Level, Lost, run_all
from aftercommit.transactions.pending import PendingWrite

log = logging.getLogger("aftercommit.transactions")


class Root:
    """One transaction in the database and the levels that are open in it."""

    def __init__(self, opened: OpenTransaction, identity: object) -> None:
        self.opened = opened
        self.identity = identity
        self.levels: list[Level] = []
        self.savepoints = 0
        self.pending: list[PendingWrite[Any]] = []
        #: The raw connection was handed out, so rows may have been undone unseen.
        self.is_exposed = False


class OwnedTransaction:
    """A transaction that the outbox opened. It belongs to the thread or task that began it."""

    observes_commit = True

    def __init__(
        self,
        outbox: object,
        executor: Executor,
        store: EventStore,
        runtime: Callable[[], Runtime],
        *,
        commits_on_exit: bool = True,
    ) -> None:
        self.outbox = outbox
        self._executor = executor
        self._store = store
        self._runtime = runtime
        self._commits_on_exit = commits_on_exit
        self._root: Root | None = None
        self._level: Level | None = None
        self._ended: str | None = None

    # ------------------------------------------------------------ TxContext

    @property
    def tx(self) -> OpenTransaction:
        return self._live().opened

    def is_here(self) -> bool:
        return self._root is not None and self._ended is None and self._root.identity == self._runtime().identity()

    def is_transaction_active(self) -> bool:
        return self.is_here() and self._live().opened.is_open

    def current_connection(self) -> Any:
        """The driver's connection, the same that business statements run on."""
        root = self._live()
        root.is_exposed = True
        return root.opened.connection

    @property
    def connection(self) -> Any:
        return self.current_connection()

    def after_commit(self, callback: Callback) -> None:
        """Call it once the whole transaction is committed, and only then."""
        self._innermost().on_commit.append(_callable(callback))

    def after_rollback(self, callback: Callback) -> None:
        """Call it once this part is rolled back, or when the outcome of the commit is unknown."""
        self._innermost().on_rollback.append(_callable(callback))

    def wrote(self, keys: Sequence[RowKey], lost: Lost) -> None:
        self._innermost().written.append((keys, lost))

    def track(self, pending: PendingWrite[Any]) -> None:
        self._live().pending.append(pending)

    # ------------------------------------------------------------ steering, colourless

    async def _begin(self) -> None:
        if self._root is not None or self._ended is not None:
            raise TransactionEnded("this transaction was begun before", fix="call outbox.transaction() for each block")
        outer = ambient.innermost(self.outbox, OwnedTransaction)
        if outer is None:
            await self._store.open()
            self._root = Root(await self._executor.begin(), self._runtime().identity())
            self._level = Level()
        else:
            self._root = outer._live()
            self._root.savepoints += 1
            self._level = Level(f"aftercommit_{self._root.savepoints}")
            await self._root.opened.savepoint(self._level.name)
        self._root.levels.append(self._level)

    async def _query(self, sql: str, parameters: Any = ()) -> QueryResult:
        return await self._live().opened.query(sql, parameters)

    async def _commit(self) -> None:
        """Commit, or release the savepoint. Again is fine."""
        if self._ended == "committed":
            return
        root, level = self._live(), self._own_level()
        self._refuse_unawaited(root)
        if len(root.levels) > 1:
            await root.opened.release(level.name)
            root.levels.pop()
            root.levels[-1].absorb(level)
            self._end("committed")
            return
        await self._settle_root(root, level)

    async def _settle_root(self, root: Root, level: Level) -> None:
        try:
            await self._check_survival(root, level)
            await root.opened.commit()
        except BaseException:
            await self._undo(root, level)
            raise
        self._end("committed")
        try:
            await root.opened.end()
        finally:
            run_all(level.on_commit)

    async def _check_survival(self, root: Root, level: Level) -> None:
        """What was undone behind our back must not be delivered from memory."""
        if not root.opened.is_open:
            raise TransactionEnded(
                "the transaction was ended on the connection itself, before the block did it",
                fix="use tx.commit() and tx.rollback(), and no statement that rolls back by itself",
            )
        if root.is_exposed and level.written:
            keys = [key for written, _ in level.written for key in written]
            surviving = await self._store.surviving(root.opened, keys)
            for written, lost in level.written:
                if gone := [key for key in written if key not in surviving]:
                    lost(gone)

    async def _rollback(self) -> None:
        """Roll back, or back to the savepoint. Again is fine."""
        if self._ended == "rolled back":
            return
        root, level = self._live(), self._own_level()
        for pending in root.pending:
            pending.forgive()
        if len(root.levels) == 1:
            await self._undo(root, level)
            return
        root.levels.pop()
        self._end("rolled back")
        try:
            if root.opened.is_open:
                await root.opened.rollback_to(level.name)
        finally:
            run_all(level.on_rollback)

    async def _undo(self, root: Root, level: Level) -> None:
        """Give everything back. An error of the rollback itself is logged: the caller's own error matters more."""
        self._end("rolled back")
        try:
            await root.opened.end()
        except Exception as error:
            log.warning("the rollback failed; the connection is given up: %s", error_text(error))
        finally:
            run_all(level.on_rollback)

    async def _leave(self, error: BaseException | None) -> None:
        if self._ended is not None or self._root is None:
            return
        if error is None and self._commits_on_exit:
            try:
                await self._commit()
            except NotAwaited:
                await self._rollback()
                raise
        else:
            await self._rollback()

    # ------------------------------------------------------------ looking

    def _live(self) -> Root:
        if self._root is None or self._ended is not None:
            state = "was not begun" if self._ended is None else f"has been {self._ended}"
            raise NotInTransaction(f"the transaction {state}", fix="with outbox.transaction() as tx: …")
        return self._root

    def _own_level(self) -> Level:
        root = self._live()
        if root.levels[-1] is not self._level:
            raise TransactionEnded(
                "a nested transaction is still open inside this one", fix="end the inner block first"
            )
        return self._level

    def _innermost(self) -> Level:
        """Where a row physically belongs now, whichever of the nested objects was used to write it."""
        return self._live().levels[-1]

    def _refuse_unawaited(self, root: Root) -> None:
        forgotten = [pending for pending in root.pending if not pending.is_awaited]
        if forgotten:
            names = ", ".join(pending.what for pending in forgotten)
            for pending in forgotten:
                pending.forgive()
            raise NotAwaited(
                f"write() of {names} was never awaited, so nothing of it is saved; the transaction is rolled back",
                fix="await outbox.write(…)",
            )

    def _end(self, how: str) -> None:
        self._ended = how
        ambient.leave(self)


def _callable(callback: Callback) -> Callback:
    if not callable(callback):
        raise TypeError(f"a callback is called without arguments; {callback!r} cannot be called")
    return callback


class Transaction(OwnedTransaction):
    """`with outbox.transaction() as tx:` commits at the end of the block and rolls back on an error."""

    def begin(self) -> Self:
        run(self._begin())
        ambient.enter(self)
        return self

    def execute(self, sql: str, parameters: Any = ()) -> QueryResult:
        """Run a statement of your own in this transaction."""
        return run(self._query(sql, parameters))

    def commit(self) -> None:
        run(self._commit())

    def rollback(self) -> None:
        run(self._rollback())

    def __enter__(self) -> Self:
        return self if self._root is not None and self._ended is None else self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._leave(error))


class AsyncTransaction(OwnedTransaction):
    """`async with outbox.transaction() as tx:` commits at the end of the block and rolls back on an error."""

    async def begin(self) -> Self:
        await self._begin()
        ambient.enter(self)
        return self

    def execute(self, sql: str, parameters: Any = ()) -> Awaitable[QueryResult]:
        """Run a statement of your own in this transaction."""
        return self._query(sql, parameters)

    async def commit(self) -> None:
        await self._shielded(self._commit)

    async def rollback(self) -> None:
        await self._shielded(self._rollback)

    async def __aenter__(self) -> Self:
        return self if self._root is not None and self._ended is None else await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._shielded(lambda: self._leave(error))

    async def _shielded(self, work: Callable[[], Any]) -> None:
        """To the end even when the task is cancelled: those who wait for a commit have to hear of it."""
        try:
            await self._runtime().shielded(work())
        finally:
            if self._ended is not None:
                ambient.leave(self)  # the shielded part ran in a context of its own
