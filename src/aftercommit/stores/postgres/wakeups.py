"""Wake-ups over LISTEN and NOTIFY, whichever driver listens: an executor sends them, in no transaction but their own,
and one connection does nothing but hear them."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Protocol

from aftercommit.errors import StoreUnavailable
from aftercommit.ports import WakeupsUnavailable
from aftercommit.stores.sql.connections import abandoned
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.faults import missing
from aftercommit.stores.sql.identifiers import TableNames
from aftercommit.stores.sql.statements import Statements

#: Seconds without a message after which the connection has to show that it is alive. What is cut off in silence is
#: known by nothing else: the system's own keepalives begin after two hours.
SILENCE: Final = 10.0

#: Seconds within which a server that is there answers.
ANSWER: Final = 5.0

#: PostgreSQL cuts longer names of channels.
_LONGEST_CHANNEL: Final = 63


class Ear(Protocol):
    """A session of its own that listens. One waits at a time; `wake` may be called from any thread."""

    @property
    def is_here(self) -> bool:
        """Whether it can be used from here; under asyncio it belongs to a loop."""
        ...

    async def is_direct(self) -> bool:
        """Whether the server is reached without a pooler, which would lend the session to others. Raises when the
        server does not answer soon."""
        ...

    async def listen(self, channel: str) -> None: ...

    async def wait(self, seconds: float) -> bool:
        """Until something comes in, or `wake` is called. False when the time is over."""
        ...

    def take(self) -> list[str]:
        """What has been heard since. Raises when the connection is broken."""
        ...

    def wake(self) -> None: ...

    async def close(self) -> None:
        """Whoever waits is woken."""


class ListeningExecutor(Executor, Protocol):
    """An executor whose driver can also listen."""

    async def ear(self) -> Ear:
        """On a new connection that no pool counts."""
        ...


class PostgresWakeups:
    """The port. Those that listen are in `listening`, so that the store can end what it lent."""

    def __init__(
        self,
        executor: ListeningExecutor,
        sender: Executor,
        sql: Statements,
        names: TableNames,
        listening: set[PostgresWakeups],
    ) -> None:
        self._executor = executor
        self._sender = sender
        self._sql = sql
        self._names = names
        self._listening = listening
        self._channel: str | None = None
        self._ear: Ear | None = None
        self._is_interrupted = False

    async def send(self, message: str) -> None:
        statement = self._sql["notify"]
        await self._sender.execute(statement.sql, statement.bind(channel=await self._named(), message=message))

    async def receive(self) -> list[str]:
        ear = self._ear
        if ear is None or not ear.is_here:
            await self._begin()
            return []
        try:
            return await self._heard(ear)
        except Exception:
            if self._ear is not ear:
                return []  # somebody has closed it
            await self._end(ear)
            raise
        except BaseException:
            await self._end(ear)
            raise

    async def _begin(self) -> None:
        self.abandon()  # what belongs to a loop that has ended
        channel = await self._named()
        ear = await self._executor.ear()
        try:
            if not await ear.is_direct():
                raise WakeupsUnavailable(
                    "a pooler stands before PostgreSQL, and LISTEN needs a session of its own; a URL that leads to the "
                    "server itself would do"
                )
            await ear.listen(channel)
        except BaseException:
            await ear.close()
            raise
        self._ear = ear
        self._listening.add(self)

    async def _heard(self, ear: Ear) -> list[str]:
        while not self._is_interrupted and self._ear is ear:  # or somebody closes it
            if messages := ear.take():
                return messages
            if not await ear.wait(SILENCE):
                await ear.is_direct()  # it has to answer
        self._is_interrupted = False
        return []

    def interrupt(self) -> None:
        self._is_interrupted = True  # also for a `receive` that has yet to begin to wait
        if (ear := self._ear) is not None:
            ear.wake()

    async def _named(self) -> str:
        if self._channel is None:
            rows = await self._sender.fetch(self._sql["schema_of_table"].sql, writes=False)
            if not rows:
                raise missing(self._names)
            self._channel = channel_of(rows[0][0], self._names.table)
        return self._channel

    async def close(self) -> None:
        if (ear := self._ear) is not None:
            await self._end(ear)

    async def _end(self, ear: Ear) -> None:
        if self._ear is ear:
            self._ear = None
            self._listening.discard(self)
        if ear.is_here:
            await ear.close()
        else:
            abandoned.append(ear)

    def abandon(self) -> None:
        if self._ear is not None:
            abandoned.append(self._ear)
        self._ear = None
        self._listening.discard(self)


def channel_of(schema: str, table: str) -> str:
    """The outboxes of one database do not hear each other. In ASCII, whatever a session's encoding is."""
    name = f"aftercommit:{schema}.{table}"
    if len(name) <= _LONGEST_CHANNEL and name.isascii():
        return name
    return f"aftercommit:{sha256(name.encode()).hexdigest()[:48]}"


def no_answer() -> StoreUnavailable:
    return StoreUnavailable(
        f"PostgreSQL said nothing for {ANSWER:g} seconds on the connection that listens",
        fix="nothing, if it is rare: another one is opened; else look for what cuts off idle connections",
    )
