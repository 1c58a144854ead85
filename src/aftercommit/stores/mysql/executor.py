"""Transactions over connections of our own, in either colour; the drivers' modules give the colour."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from aftercommit.errors import TransactionEnded
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.mysql.faults import fault_of, is_in_step
from aftercommit.stores.mysql.link import Link, LinkTx
from aftercommit.stores.mysql.pool import Lender
from aftercommit.stores.sql.control import refuse_transaction_control
from aftercommit.stores.sql.execution import Fault

T = TypeVar("T")

#: For the next transaction only, so that no setting of the server or of the session counts. Under REPEATABLE READ
#: a claim would lock the gaps between rows as well, and writers would wait for it.
_READ_COMMITTED: Final = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

_BEGIN: Final = "START TRANSACTION"

#: How often a transaction is tried that ends in deadlocks.
_TRIES: Final = 10


class MysqlExecutor:
    """Runs statements. The store's own connections are not those that users get: what a user sets on a connection
    (a SQL mode, another database) is met by users only."""

    colour: Colour
    #: The root of the driver's errors.
    driver_error: type[Exception]

    def __init__(self, own: Lender, lent: Lender) -> None:
        self._own = own
        self._lent = lent

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self._alone(lambda tx: tx.fetch(sql, parameters))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self._alone(lambda tx: tx.execute(sql, parameters))

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        if not writes:
            return await self._alone(work)
        return await self._until_no_conflict(lambda: self._once(work, _READ_COMMITTED, _BEGIN))

    async def _alone(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        """Not begun: in autocommit mode one statement is a transaction, and reads need none."""
        return await self._until_no_conflict(lambda: self._once(work, _READ_COMMITTED))

    async def _until_no_conflict(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The loser of a deadlock is rolled back whole, and all of it is done again."""
        for _ in range(_TRIES - 1):
            try:
                return await attempt()
            except Exception as error:
                if self.fault_of(error) is not Fault.CONFLICT:
                    raise
        return await attempt()

    async def _once(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *opening: str) -> T:
        link = await self._own.take(*opening)
        try:
            value = await work(LinkTx(link))
            if link.is_in_transaction:
                await link.run("COMMIT")
        except BaseException as error:
            await self._undo(link, error)
            raise
        finally:
            await self._own.give(link)
        return value

    async def _undo(self, link: Link, error: BaseException) -> None:
        """Roll back; give up a connection on which that is in doubt. A cancelled statement leaves replies unread."""
        if not is_in_step(error, self.driver_error):
            link.drop()
            return
        await rolled_back(link)

    async def begin(self) -> OpenMysqlTransaction:
        """In the isolation level of the server: it is the user's transaction."""
        return OpenMysqlTransaction(await self._lent.take(_BEGIN), self._lent.give)

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error, self.driver_error)

    async def close(self) -> None:
        await self._own.close()
        await self._lent.close()

    def abandon(self) -> None:
        self._own.abandon()
        self._lent.abandon()


class OpenMysqlTransaction(LinkTx):
    """A transaction that the user steers."""

    def __init__(self, link: Link, give_back: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
        super().__init__(link)
        self._give_back = give_back
        self._is_lent = True
        #: The user has the driver's connection, so the state that was heard last may be an old one.
        self._is_exposed = False

    @property
    def connection(self) -> Any:
        self._is_exposed = True
        return self._link.raw

    @property
    def is_open(self) -> bool:
        return self._is_lent and self._link.is_open and self._link.is_in_transaction

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_transaction_control(sql)
        return await self._heard(self._link.query(sql, parameters))

    async def _run(self, sql: str, parameters: Sequence[object] = ()) -> QueryResult:
        return await self._heard(super()._run(sql, parameters))

    async def _heard(self, statement: Coroutine[Any, Any, QueryResult]) -> QueryResult:
        """A deadlock ends the transaction; what comes behind it must not be saved by itself."""
        try:
            return await statement
        except Exception:
            with suppress(Exception):
                await self._link.ping()
            raise

    async def commit(self) -> None:
        if self._is_exposed:
            await self._link.ping()
        if not self.is_open:
            raise TransactionEnded(
                "the server has no transaction to commit: it was rolled back, or ended by a statement in it",
                fix="do the work again; keep DDL out of transactions, it commits by itself",
            )
        await self._link.run("COMMIT")
        await self._return()

    async def savepoint(self, name: str) -> None:
        await self._run(f"SAVEPOINT `{name}`")

    async def release(self, name: str) -> None:
        await self._run(f"RELEASE SAVEPOINT `{name}`")

    async def rollback_to(self, name: str) -> None:
        await self._run(f"ROLLBACK TO SAVEPOINT `{name}`")
        await self._run(f"RELEASE SAVEPOINT `{name}`")

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if self._is_lent:
            try:
                await rolled_back(self._link)
            finally:
                await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        await self._give_back(self._link)


async def rolled_back(link: Link) -> None:
    """Or closed, which is the same to the server."""
    if link.is_open:
        try:
            await link.run("ROLLBACK")
        except BaseException as error:
            link.drop()
            if not isinstance(error, Exception):
                raise
