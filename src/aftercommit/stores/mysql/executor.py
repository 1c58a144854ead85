"""Transactions in either colour; the drivers' modules give the colour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aftercommit.errors import TransactionEnded
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Tx
from aftercommit.stores.mysql.faults import fault_of, is_in_step
from aftercommit.stores.mysql.link import AUTOCOMMIT, IN_TRANSACTION, AdoptedLinkTx, DriverLink, LinkTx
from aftercommit.stores.sql.connections import Give, Lender, LinkExecutor, retrying
from aftercommit.stores.sql.execution import Fault

T = TypeVar("T")

#: For the next transaction only, so that no setting of the server or of the session counts.
_ISOLATION: Final = "SET TRANSACTION ISOLATION LEVEL "

#: Our own. Under REPEATABLE READ a claim would lock the gaps between rows as well, and writers would wait for it.
_READ_COMMITTED: Final = f"{_ISOLATION}READ COMMITTED"

_BEGIN: Final = "START TRANSACTION"

#: Our own. TiDB, which alone reads the comment, may be set to look for conflicts only when a transaction commits.
_BEGIN_OWN: Final = "BEGIN /*T! PESSIMISTIC */"

_STATE: Final = IN_TRANSACTION | AUTOCOMMIT


class MysqlExecutor(LinkExecutor):
    """Runs statements in either colour: its links give it."""

    commits_single = True  # in autocommit mode

    def __init__(self, kind: type[DriverLink], own: Lender, lent: Lender) -> None:
        super().__init__(own, lent, kind.colour)
        self._kind = kind
        self.driver_error = kind.error

    def adopt(self, connection: object) -> AdoptedLinkTx | None:
        return AdoptedLinkTx(self._kind(connection)) if isinstance(connection, self._kind.connections) else None

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error, self.driver_error)


@dataclass(eq=False)
class MysqlLink:
    """A connection as it is lent: opened when it is first needed, and again when it did not survive a rest."""

    _connect: Callable[[], Awaitable[DriverLink]]
    _driver_error: type[Exception]
    #: Is told of one that did not survive.
    _lose: Callable[[DriverLink], Awaitable[None]] | None = None
    #: What users' transactions begin in; None leaves it to the session.
    isolation: str | None = None
    link: DriverLink | None = None

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give, *, writes: bool) -> T:
        """The loser of a deadlock is rolled back whole, and all of it is done again. Reads need no transaction, and a
        single statement is one by itself."""
        opening = (_READ_COMMITTED, _BEGIN_OWN) if writes else (_READ_COMMITTED,)
        try:
            return await retrying(lambda: self._once(work, opening), self._fault_of)
        finally:
            await give(self, is_sound=self.is_sound)

    async def _once(self, work: Callable[[Tx], Coroutine[Any, Any, T]], opening: Sequence[str]) -> T:
        link = await self._ready(opening)
        try:
            value = await work(LinkTx(link))
            if link.is_in_transaction:
                await link.commit()
        except BaseException as error:
            # A connection on which a rollback is in doubt is given up: a cancelled statement leaves replies unread.
            if is_in_step(error, self._driver_error) and fault_of(error, self._driver_error) is not Fault.READ_ONLY:
                await rolled_back(link)
            else:
                link.drop()
            raise
        return value

    async def begin(self, give: Give, isolation: str | None = None) -> OpenMysqlTransaction:
        """In the isolation level of the session, if nobody asked for another: it is the user's transaction."""
        isolation = isolation or self.isolation
        try:
            link = await self._ready((f"{_ISOLATION}{isolation}", _BEGIN) if isolation else (_BEGIN,))
        except BaseException:
            await give(self, is_sound=self.is_sound)
            raise
        return OpenMysqlTransaction(link, self, give)

    async def _ready(self, opening: Sequence[str]) -> DriverLink:
        """The connection, with these statements run on it. Every transaction begins so: what died while nobody used it
        is found here, and another one takes over."""
        if self.link is not None and not self.link.is_here:  # it belongs to an event loop that has ended
            self.link.drop()
        link = self.link if self.link is not None and self.link.is_open else await self._anew()
        try:
            await _opened(link, opening)
        except Exception as error:
            if self._fault_of(error) is not Fault.UNREACHABLE:
                raise
            link = await self._anew()
            await _opened(link, opening)
        return link

    async def _anew(self) -> DriverLink:
        dead, self.link = self.link, None
        if dead is not None and self._lose is not None:
            await self._lose(dead)
        self.link = await self._connect()
        return self.link

    def _fault_of(self, error: Exception) -> Fault:
        return fault_of(error, self._driver_error)

    @property
    def is_sound(self) -> bool:
        """As it was lent: open, out of every transaction, in autocommit mode."""
        link = self.link
        return link is not None and link.raw.server_status & _STATE == AUTOCOMMIT and link.is_open

    async def close(self) -> None:
        if self.link is not None and self.link.is_here:
            await self.link.close()

    def drop(self) -> None:
        if self.link is not None:
            self.link.drop()


async def _opened(link: DriverLink, opening: Sequence[str]) -> None:
    """Run these on it; when that fails, it is closed."""
    try:
        for sql in opening:
            await link.send(sql)
    except BaseException:
        link.drop()
        raise


@dataclass(eq=False)
class OpenMysqlTransaction(LinkTx):
    """A transaction that the user steers."""

    _link: DriverLink
    _lent: MysqlLink
    _give: Give
    _is_lent: bool = True
    #: The user has the driver's connection, so the state that was heard last may be an old one.
    _is_exposed: bool = False
    #: After a switchover a session of the former primary would take no writes for ever: nobody gets it again.
    _is_read_only: bool = False

    @property
    def connection(self) -> Any:
        self._is_exposed = True
        return self._link.raw

    @property
    def is_open(self) -> bool:
        """Or its session has ended, which the next statement says best."""
        return self._is_lent and (bool(self._link.raw.server_status & IN_TRANSACTION) or not self._link.is_open)

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        try:
            return await self._link.query(sql, parameters)
        except Exception as error:
            await self._hear(error)
            raise

    async def _hear(self, error: Exception) -> None:
        """A deadlock ends the transaction; what comes behind it must not be saved by itself."""
        self._is_read_only = self._is_read_only or fault_of(error, self._link.error) is Fault.READ_ONLY
        with suppress(Exception):
            await self._link.ping()

    async def commit(self) -> None:
        if self._is_exposed:
            await self._link.ping()
        if not self.is_open:
            raise TransactionEnded(
                "the server has no transaction to commit: it was rolled back, or ended by a statement in it",
                fix="do the work again; keep DDL out of transactions, it commits by itself",
            )
        await self._link.commit()
        await self._return()

    async def savepoint(self, name: str) -> None:
        await self.execute(f"SAVEPOINT `{name}`")

    async def release(self, name: str) -> None:
        await self.execute(f"RELEASE SAVEPOINT `{name}`")

    async def rollback_to(self, name: str) -> None:
        await self.execute(f"ROLLBACK TO SAVEPOINT `{name}`")
        await self.execute(f"RELEASE SAVEPOINT `{name}`")

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if self._is_lent:
            try:
                await rolled_back(self._link)
            finally:
                await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        if self._is_read_only:
            self._link.drop()
        await self._give(self._lent, is_sound=self._lent.is_sound)


async def rolled_back(link: DriverLink) -> None:
    """Or closed, which is the same to the server."""
    if link.is_open:
        try:
            await link.send("ROLLBACK")
        except BaseException as error:
            link.drop()
            if not isinstance(error, Exception):
                raise
