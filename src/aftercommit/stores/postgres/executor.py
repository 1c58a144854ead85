"""Transactions and single statements over connections in either colour; the drivers' modules give the colour."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar, cast

from aftercommit.events.claims import QueryResult
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import Tx
from aftercommit.stores.postgres.faults import refuse_cockroach, refuse_old_server, rolled_back
from aftercommit.stores.postgres.link import Lender, Link, ListeningConnection
from aftercommit.stores.postgres.loops import not_heard
from aftercommit.stores.sql.connections import retrying
from aftercommit.stores.sql.execution import Fault

log = Log("aftercommit.postgres")

T = TypeVar("T")

#: How the store's own transactions begin. A process that stands still inside one (a stopped machine, a network that
#: is gone) would keep its rows locked, and others would pass over them long after its leases have run out.
BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '10s'"


class PostgresExecutor:
    """A single statement is a transaction by itself, in one round trip where the driver can do that."""

    def __init__(self, kind: type[Link], lender: Lender) -> None:
        self.colour = kind.colour
        #: Whose statements it is given.
        self.product = "PostgreSQL"
        self._kind = kind
        self._lender = lender

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return (await self._single(sql, parameters)).rows

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return (await self._single(sql, parameters, is_command=not parameters)).rowcount

    async def _single(self, sql: str, parameters: Sequence[object], *, is_command: bool = False) -> QueryResult:
        """A command is one message with every driver, and perhaps one that no transaction may hold."""
        if is_command or self._kind.is_one_trip or self._lender.is_direct:
            link = await self._take()
            try:
                return QueryResult([], await link.command(sql)) if is_command else await link.run(sql, parameters)
            except BaseException as error:
                fault = self.fault_of(error) if isinstance(error, Exception) else None
                if link.is_gone:
                    await self._lender.check()
                elif fault is Fault.READ_ONLY or not link.is_sound_after(error):
                    await link.close()
                if fault is not Fault.CONFLICT:
                    raise
            finally:
                await self._lender.give(link)
        # Not as strictly as the session may want it by default: then a conflict could come again for ever.
        return await self.transact(lambda tx: cast("OpenPostgresTransaction", tx).link.run(sql, parameters))

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await retrying(lambda: self._transact(work), self.fault_of)

    async def _transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        opened = await self.begin(words=BEGIN)
        try:
            refuse_old_server(opened.link.version)
            if self.product != "CockroachDB" and opened.link.is_cockroach:
                refuse_cockroach()
            value = await work(opened)
            await opened.commit()
        finally:
            await opened.end()
        return value

    async def begin(self, isolation: str | None = None, words: str | None = None) -> OpenPostgresTransaction:
        """A connection that died while it was idle is found out here, where nothing is lost yet."""
        try:
            return await self._begun(isolation, words)
        except Exception as error:
            if self.fault_of(error) is not Fault.UNREACHABLE:
                raise
        await self._lender.check()
        return await self._begun(isolation, words)

    async def _begun(self, isolation: str | None, words: str | None) -> OpenPostgresTransaction:
        link = await self._take()
        try:
            await link.send(words or link.opening(isolation))
        except BaseException:
            try:
                await link.close()  # it may yet begin, and does not know it
            finally:
                await self._lender.give(link)
            raise
        return OpenPostgresTransaction(link, self._lender)

    async def _take(self) -> Link:
        """A connection whose session was not ended while it was idle."""
        before = self._kind.cancellations()
        while True:
            link = await self._lender.take()
            try:
                is_ready = await link.is_ready()
                if self._kind.cancellations() > before:
                    raise not_heard()
            except BaseException:
                await self._lender.give(link)
                raise
            if is_ready:
                return link
            await self._lender.give(link)

    def adopt(self, connection: object) -> Link | None:
        return self._kind(connection) if isinstance(connection, self._kind.connections) else None

    async def listening(self) -> ListeningConnection:
        """On a new connection that no pool counts."""
        return (await self._lender.apart()).listening()

    async def apart(self) -> Link:
        """A connection of its own for somebody who keeps its session, in no pool and in no transaction. Whoever asks
        for it ends it."""
        link = await self._lender.apart()
        await link.is_ready()
        return link

    def fault_of(self, error: Exception) -> Fault:
        return self._kind.fault_of(error)

    async def close(self) -> None:
        await self._lender.close()

    def abandon(self) -> None:
        self._lender.abandon()


class OpenPostgresTransaction:
    """A transaction on a connection that was lent; it is given back at the end."""

    def __init__(self, link: Link, lender: Lender) -> None:
        self.link = link
        self._lender = lender
        self._is_lent = True
        self._is_read_only = False

    @property
    def connection(self) -> Any:
        self.link.is_exposed = True
        return self.link.raw

    @property
    def is_open(self) -> bool:
        """Or its session has ended, which the next statement says best."""
        return self._is_lent and (self.link.is_begun or self.link.is_gone)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        try:
            return await self.link.execute(sql, parameters)
        except Exception as error:
            self._hear(error)
            raise

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return sum([await self.execute(sql, each) for each in parameters])

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        try:
            return await self.link.fetch(sql, parameters)
        except Exception as error:
            self._hear(error)
            if isinstance(error, self.link.failed):
                raise rolled_back() from error
            raise

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        try:
            return await self.link.query(sql, parameters)
        except Exception as error:
            self._hear(error)
            raise

    def _hear(self, error: Exception) -> None:
        """After a switchover the session of a former primary would take no writes for ever: nobody gets it again."""
        self._is_read_only = self._is_read_only or self.link.fault_of(error) is Fault.READ_ONLY

    async def commit(self) -> None:
        await self.link.commit()
        await self._return()

    async def savepoint(self, name: str) -> None:
        await self.link.command(f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        await self.link.command(f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        await self.link.command(f'ROLLBACK TO "{name}"', f'RELEASE "{name}"')

    async def end(self) -> None:
        if not self._is_lent:
            return
        try:
            if self.link.is_begun:
                await self.link.send("ROLLBACK")
        except BaseException as error:
            # Closed, it is rolled back as well, and nobody knows what it is in the middle of.
            await self.link.close()
            if not isinstance(error, Exception):
                raise
            # Raised, it would hide the error that led here.
            log.debug("the rollback failed, and its connection is given up: %s", error_text(error))
        finally:
            await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        try:
            if self._is_read_only:
                await self.link.close()
        finally:
            await self._lender.give(self.link)
