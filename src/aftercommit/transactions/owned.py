"""A transaction that the outbox opened: begun, committed, rolled back; nested it is a savepoint. Colourless."""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import msgspec

from aftercommit.errors import InvalidOption, NotInTransaction, TransactionEnded, UnsupportedTransaction
from aftercommit.events.claims import QueryResult
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import Callback, OpenTransaction, Runtime, Transactional, WrittenRows
from aftercommit.runtime.process import here
from aftercommit.transactions.callbacks import checked, ended_elsewhere, our_word_for, run_all
from aftercommit.transactions.lending import LendsConnection
from aftercommit.transactions.pending import PendingWrite, forgive, refuse_unawaited
from aftercommit.transactions.savepoints import HasSavepoints, refuse_taken
from aftercommit.transactions.texts import is_control, may_undo, refuse_control

log = Log("aftercommit.transactions")

#: The transactions that are open around the running code, innermost last.
_open: Final[ContextVar[tuple[OwnedTransaction, ...]]] = ContextVar("aftercommit_transactions", default=())


class Root(msgspec.Struct, eq=False):
    """One transaction in the database and the blocks that are open in it, innermost last."""

    opened: OpenTransaction
    #: The thread or task that opened it; None when nobody can end it any more.
    opener: object
    #: In a forked child it is another one: the transaction is the parent's, and so is its connection.
    process: object
    blocks: list[OwnedTransaction] = msgspec.field(default_factory=list)
    savepoints: int = 0
    #: The raw connection was handed out, or a statement may have undone more than it says: rows may be gone unseen.
    is_exposed: bool = False


#: Transactions that nobody can end any more. A finaliser may run anywhere, so they wait for the next one that begins.
given_up: Final[deque[OwnedTransaction]] = deque()

#: Transactions of a parent process that a forked child has met.
_parents: list[Root] = []


def innermost(outbox: object) -> OwnedTransaction | None:
    """The last one of this outbox that is open, and was opened by the thread or task that asks. A task inherits its
    parent's context, not its right."""
    for transaction in reversed(_open.get()):
        if transaction.outbox is outbox and transaction.is_here():
            return transaction
    return None


def has_any(outbox: object) -> bool:
    """Whether one of this outbox is open around the running code, whoever has opened it."""
    around = _open.get()
    return bool(around) and any(each.outbox is outbox and each._root is not None for each in around)


async def end_given_up(runtime: Runtime) -> None:
    """Roll back those that nobody can end any more. One of another outbox is left to it: its loop may be another."""
    for _ in range(len(given_up)):
        try:
            lost = given_up.popleft()
        except IndexError:  # another thread is at it
            return
        if lost._runtime is not runtime:
            given_up.append(lost)
        elif lost._root is not None:
            await lost._undo(lost._root, ended_elsewhere())  # whose notes are what its callbacks raise


class OwnedTransaction(LendsConnection, HasSavepoints):
    """A transaction that the outbox opened. It belongs to the thread or task that began it."""

    observes_commit = True

    def __init__(
        self,
        outbox: object,
        store: Transactional,
        runtime: Runtime,
        *,
        isolation: str | None = None,
        commits_on_exit: bool = True,
    ) -> None:
        self.outbox = outbox
        self._store = store
        self._runtime = runtime
        self._isolation = isolation and store.capabilities.level(isolation, store.where)
        self._commits_on_exit = commits_on_exit
        #: None before it is begun and after it has ended.
        self._root: Root | None = None
        self._ended: str | None = None
        self._savepoint = ""
        # What waits for the end of this block. Of a savepoint it becomes part of what is around it.
        self._on_commit: list[Callback] = []
        self._on_rollback: list[Callback] = []
        self._written: list[WrittenRows] = []
        self._pending: list[PendingWrite[Any]] = []

    # ------------------------------------------------------------ TxContext

    @property
    def tx(self) -> OpenTransaction:
        return (self._root or self._refuse()).opened

    def is_here(self) -> bool:
        """Open, and opened by the thread or task that asks."""
        root = self._root
        return root is not None and root.opener is self._runtime.identity() and root.process is here.token

    def is_transaction_active(self) -> bool:
        root = self._root
        return (
            root is not None
            and root.opener is self._runtime.identity()
            and root.process is here.token
            and root.opened.is_open
        )

    # Each joins the innermost block: that is where a row physically belongs, whichever object was used to write it.

    def after_commit(self, callback: Callback) -> None:
        """Call it once the whole transaction is committed, and only then."""
        (self._root or self._refuse()).blocks[-1]._on_commit.append(checked(callback))

    def after_rollback(self, callback: Callback) -> None:
        """Call it once this part is rolled back, or when the outcome of the commit is unknown."""
        (self._root or self._refuse()).blocks[-1]._on_rollback.append(checked(callback))

    def wrote(self, rows: WrittenRows) -> None:
        block = (self._root or self._refuse()).blocks[-1]
        block._written.append(rows)
        block._on_commit.append(rows.committed)
        block._on_rollback.append(rows.rolled_back)

    def track(self, pending: PendingWrite[Any]) -> None:
        """A write that has to be awaited before the commit."""
        (self._root or self._refuse()).blocks[-1]._pending.append(pending)

    # ------------------------------------------------------------ steering, colourless

    async def _begin(self) -> None:
        if self._root is not None or self._ended is not None:
            raise TransactionEnded("this transaction was begun before", fix="call outbox.transaction() for each block")
        if given_up:
            await end_given_up(self._runtime)
        outer = innermost(self.outbox) if self._within is None else self._within._here()
        if outer is None:
            if not self._store.is_ready:
                await self._store.open()
            root = Root(await self._store.begin(self._isolation), self._runtime.identity(), here.token)
        else:
            root = outer._intact()
            if self._isolation is not None:
                raise InvalidOption(
                    f"a transaction is open, and isolation={self._isolation!r} cannot be that of a part of it",
                    fix="give isolation to the outermost outbox.transaction()",
                )
            if not self._store.capabilities.has_savepoints:
                raise UnsupportedTransaction(
                    f"a transaction is open, and {self._store.where} has no savepoints",
                    fix="one outbox.transaction() around all of the work",
                )
            refuse_taken(self._savepoint, [block._savepoint for block in root.blocks])
            root.savepoints += 1
            self._savepoint = self._savepoint or f"aftercommit_{root.savepoints}"
            try:
                await root.opened.savepoint(self._savepoint)
            except Exception as error:
                raise our_word_for(error, self._store)  # noqa: B904
        root.blocks.append(self)
        self._root = root
        # One that was ended in another context is still in this one.
        around = _open.get()
        _open.set((*[each for each in around if each._root is not None], self) if around else (self,))

    async def _query(self, sql: str, parameters: Any = ()) -> QueryResult:
        root = self._intact()
        if is_control(sql):
            refuse_control(sql)
        root.is_exposed = root.is_exposed or may_undo(sql)
        try:
            return await root.opened.query(sql, parameters)
        except Exception as error:
            raise our_word_for(error, self._store)  # noqa: B904

    async def _commit(self) -> None:
        """Commit, or release the savepoint. Again is fine."""
        if self._ended != "committed":
            await self._commit_in(self._own())

    async def _commit_in(self, root: Root) -> None:
        if root.blocks[-1] is not self:
            raise TransactionEnded(
                "a nested transaction is still open inside this one", fix="end the inner block first"
            )
        try:
            if self._pending:
                refuse_unawaited(self._pending)
            if not root.opened.is_open:
                raise ended_elsewhere()
            if len(root.blocks) > 1:
                await root.opened.release(self._savepoint)
            else:
                if root.is_exposed and self._written:
                    await self._forget_undone(root)
                await root.opened.commit()
        except BaseException as error:
            ours = our_word_for(error, self._store)
            await self._undo(root, ours)
            raise ours  # noqa: B904
        self._end("committed", root)
        if root.blocks:  # a released savepoint is part of what is around it
            around = root.blocks[-1]
            around._on_commit += self._on_commit
            around._on_rollback += self._on_rollback
            around._written += self._written
        elif len(self._on_commit) == 1:  # nearly always: one write
            self._on_commit[0]()
        elif self._on_commit:
            run_all(self._on_commit)

    async def _forget_undone(self, root: Root) -> None:
        """What was undone behind our back must not be delivered from memory."""
        there = await self._store.surviving(root.opened, [key for rows in self._written for key in rows.keys])
        for rows in self._written:
            if gone := [key for key in rows.keys if key not in there]:
                rows.undone(gone)

    async def _rollback(self) -> None:
        """Roll back, or back to the savepoint. Again is fine."""
        if self._ended != "rolled back":
            await self._undo(self._own())

    async def _undo(self, root: Root, cause: BaseException | None = None) -> None:
        """Give back this block and whatever is still open in it. The error that led here goes before all others."""
        undone = root.blocks[root.blocks.index(self) :]
        for block in undone:
            block._end("rolled back", root)
        try:
            if not root.blocks:
                await root.opened.end()
            elif root.opened.is_open:
                await root.opened.rollback_to(self._savepoint)
        except Exception as error:
            if root.blocks and cause is None:
                raise
            log.warning("the rollback failed; the connection is given up: %s", error_text(error))
        finally:
            run_all((callback for block in undone for callback in block._on_rollback), beside=cause)

    async def _leave(self, error: BaseException | None) -> None:
        root = self._root
        if root is None:
            return
        if root.process is not here.token:
            _parents.append(root)  # never closed here: that could undo what the parent has locked
            self._end("left to the process that opened it", root)
            return
        if error is not None or not self._commits_on_exit:
            await self._undo(root, error)
            return
        try:
            await self._commit_in(root)
        except TransactionEnded as refusal:
            if self._root is not None:
                await self._undo(root, refusal)
            raise

    # ------------------------------------------------------------ looking

    def _refuse(self) -> NoReturn:
        state = "was not begun" if self._ended is None else f"has been {self._ended}"
        raise NotInTransaction(
            f"the transaction {state}", fix=f"{self._store.colour.block} outbox.transaction() as tx: …"
        )

    def _own(self) -> Root:
        """Open, and of this process."""
        root = self._root or self._refuse()
        if root.process is not here.token:
            raise NotInTransaction(
                "the transaction was opened by the process that this one was forked from",
                fix="open one in this process",
            )
        return root

    def _intact(self) -> Root:
        """Its own, and the database still has it: a statement after its end would be saved at once, by itself."""
        root = self._root
        if root is None or root.process is not here.token:
            root = self._own()  # which says what is wrong
        if not root.opened.is_open:
            raise ended_elsewhere()
        return root

    def _end(self, how: str, root: Root) -> None:
        self._ended, self._root = how, None
        root.blocks.remove(self)
        if self._pending:
            forgive(self._pending)  # awaited, reported, or undone with its transaction
        self._leave_context()

    def _leave_context(self) -> None:
        """By value: blocks may end in another order than they began, and a token would restore the dead."""
        entries = _open.get()
        if self in entries:
            _open.set(tuple([each for each in entries if each is not self]) if len(entries) > 1 else ())
