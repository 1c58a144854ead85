"""Wake-ups over LISTEN and NOTIFY, whichever driver listens: an executor sends them, in no transaction but their own,
and one connection does nothing but hear them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from aftercommit.ports import WakeupsUnavailable
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.link import ListeningConnection
from aftercommit.stores.sql.connections import abandoned, cut
from aftercommit.stores.sql.execution import Executor, missing
from aftercommit.stores.sql.statements import Statements, TableNames

#: Seconds without a message after which the connection has to show that it is alive. What is cut off in silence is
#: known by nothing else: the system's own keepalives begin after two hours.
SILENCE: Final = 10.0

#: PostgreSQL cuts longer names of channels.
_LONGEST_CHANNEL: Final = 63


@dataclass(eq=False)
class PostgresWakeups:
    """The port. Those that listen are in `_listening`, so that the store can end what it lent."""

    _executor: PostgresExecutor
    _sender: Executor
    _sql: Statements
    _names: TableNames
    _listening: set[PostgresWakeups]
    _channel: str | None = None
    _connection: ListeningConnection | None = None
    _is_interrupted: bool = False

    async def send(self, message: str) -> None:
        statement = self._sql["notify"]
        channel = await self._named(self._sender)
        await self._sender.execute(statement.sql, statement.bind(channel=channel, message=message))

    async def receive(self) -> list[str]:
        connection = self._connection
        if connection is None or not connection.is_here:
            await self._begin()
            return []
        try:
            return await self._heard(connection)
        except Exception:
            if self._connection is not connection:
                return []  # somebody has closed it
            await self._end(connection)
            raise
        except BaseException:
            await self._end(connection)
            raise

    async def _begin(self) -> None:
        await self.close()  # what belongs to a loop that has ended
        channel = await self._named(self._executor)  # which has a session, where the sender may not need one for long
        connection = await self._executor.listening()
        try:
            if not await connection.is_direct():
                raise WakeupsUnavailable(
                    "a pooler stands before PostgreSQL, and LISTEN needs a session of its own; a URL that leads to the "
                    "server itself would do"
                )
            await connection.listen(channel)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        self._listening.add(self)

    async def _heard(self, connection: ListeningConnection) -> list[str]:
        while not self._is_interrupted and self._connection is connection:  # or somebody closes it
            if messages := connection.take():
                return messages
            if not await connection.wait(SILENCE):
                await connection.is_direct()  # it has to answer
        self._is_interrupted = False
        return []

    def interrupt(self) -> None:
        self._is_interrupted = True  # also for a `receive` that has yet to begin to wait
        if (connection := self._connection) is not None:
            connection.wake()

    async def _named(self, executor: Executor) -> str:
        if self._channel is None:
            rows = await executor.fetch(self._sql["schema_of_table"].sql, writes=False)
            if not rows:
                raise missing(self._names)
            self._channel = channel_of(rows[0][0], self._names.table)
        return self._channel

    async def close(self) -> None:
        if (connection := self._connection) is not None:
            await self._end(connection)

    async def _end(self, connection: ListeningConnection) -> None:
        if self._connection is connection:
            self._connection = None
            self._listening.discard(self)
        if connection.is_here:
            await connection.close()
        else:
            connection.drop()

    def abandon(self) -> None:
        if self._connection is not None:
            abandoned.append(self._connection)
            cut(self._connection)
        self._connection = None
        self._listening.discard(self)


def channel_of(schema: str, table: str) -> str:
    """The outboxes of one database do not hear each other. In ASCII, whatever a session's encoding is."""
    name = f"aftercommit:{schema}.{table}"
    if len(name) <= _LONGEST_CHANNEL and name.isascii():
        return name
    return f"aftercommit:{sha256(name.encode()).hexdigest()[:48]}"
