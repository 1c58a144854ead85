"""A connection to PostgreSQL in either colour, and where connections come from. Under threads nothing here suspends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.stores.sql.connections import Turn
from aftercommit.stores.sql.execution import Fault

#: The process that really serves a session. A pooler has told the client of another one.
WHO_SERVES: Final = "SELECT pg_backend_pid()"


class Link(ABC):
    """A driver's connection, awaited. It is a Tx by itself: so a caller's own connection is adopted. The class tells
    one driver from another."""

    colour: ClassVar[Colour]
    #: The driver's own.
    connections: ClassVar[tuple[type, ...]]
    #: What a statement raises behind one that failed in the same transaction.
    failed: ClassVar[type[Exception]]
    #: Whether `run` is a single round trip. If it is two, they have to meet one session, and behind a pooler only those
    #: of one transaction do.
    is_one_trip: ClassVar[bool] = True
    #: How one waits for a connection.
    turn: ClassVar[Callable[[], Turn]]
    #: The event loop that a connection belongs to. Under threads always the same: `int` makes 0.
    home: ClassVar[Callable[[], object]] = int
    #: How often this task has been asked to end; only where the driver may lose that.
    cancellations: ClassVar[Callable[[], int]] = int

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        #: Where its pool keeps it, if that is the outbox's own.
        self.place: Any = None
        #: How its owner's transactions begin, where the driver's connection does not know it.
        self.modes = ""
        self._opening: str | None = None
        #: Whether it has to be restored before its owner gets it back.
        self.is_changed = False
        #: Whether a user has been given the driver's connection.
        self.is_exposed = False

    @staticmethod
    @abstractmethod
    def fault_of(error: Exception) -> Fault:
        """The driver's errors in our words."""

    # -- what it is like

    @property
    @abstractmethod
    def is_begun(self) -> bool:
        """Whether the database has an open transaction."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether a statement now would be part of a transaction: begun, or begun by the driver before it."""

    @property
    @abstractmethod
    def mark(self) -> object:
        """Another one after every statement on the connection, whoever ran it."""

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether the session has ended, as far as the driver has heard."""

    @property
    @abstractmethod
    def process(self) -> int:
        """What the client was told of the process that serves it."""

    @property
    @abstractmethod
    def descriptor(self) -> int:
        """The number of its socket."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The server's, without what comes behind the point."""

    @property
    @abstractmethod
    def is_cockroach(self) -> bool:
        """Whether the server says that it is no PostgreSQL at all."""

    @abstractmethod
    def is_sound_after(self, error: BaseException) -> bool:
        """Whether the session can go on after this ended a statement outside of transactions."""

    async def is_ready(self) -> bool:
        """Make it ready for statements and BEGINs of ours. False when its session was ended while it was idle."""
        return True

    async def restore(self) -> None:
        """As its owner had it."""
        self.is_changed = False

    # -- statements of ours: rows are tuples, whatever the connection makes of them for its owner

    @abstractmethod
    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Only for what has no plan to go wrong, an INSERT: it is prepared, if the connection prepares at all."""

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return sum([await self.execute(sql, each) for each in parameters])

    @abstractmethod
    async def run(self, sql: str, parameters: Sequence[object]) -> QueryResult:
        """Planned for its own values each time. What works on many rows is never prepared: a plan made on an empty
        table would be kept."""

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return (await self.run(sql, parameters)).rows

    @abstractmethod
    async def command(self, *words: str) -> int:
        """Statements without parameters and rows; how many rows the last one touched."""

    async def is_direct(self) -> bool:
        """Whether no pooler stands before the server. Asked in one transaction, so of one session."""
        await self.send("BEGIN")
        ((served_by,),) = await self.fetch(WHO_SERVES)
        await self.commit()
        return bool(served_by == self.process)

    # -- transactions, and the user's statements in them

    def opening(self, isolation: str | None) -> str:
        """As its owner's transactions begin, which is not always what the session would do by default. Of several
        words about one thing the server takes the last. Asked once: nobody changes it while it is lent."""
        if self._opening is None:
            self._opening = f"BEGIN{self._own_modes()}{self.modes}"
        return self._opening if isolation is None else self._opening + modes_of(isolation)

    def _own_modes(self) -> str:
        """What the driver's connection keeps to itself, for a BEGIN of its own."""
        return ""

    async def send(self, words: str) -> None:
        """BEGIN or ROLLBACK, which take and return nothing, in the cheapest way that the driver has."""
        await self.command(words)

    @abstractmethod
    async def query(self, sql: str, parameters: Any) -> QueryResult:
        """One of the user's statements."""

    @abstractmethod
    async def commit(self) -> None:
        """Raises TransactionEnded when a statement has failed before: then PostgreSQL rolls back, and calls it no
        error."""

    @abstractmethod
    def listening(self) -> ListeningConnection:
        """From now on it does nothing else."""

    @abstractmethod
    async def close(self) -> None:
        """At once, which rolls back as well."""

    async def leave(self) -> None:
        """Close, and say good-bye to the server."""
        await self.close()

    @abstractmethod
    def drop(self) -> None:
        """Close from anywhere, also when its event loop has ended."""


def modes_of(isolation: str | None, read_only: bool | None = None, deferrable: bool | None = None) -> str:
    """What is said behind BEGIN; of None nothing, so that the session's own default counts."""
    words = f" ISOLATION LEVEL {isolation.replace('_', ' ')}" if isolation else ""
    if read_only is not None:
        words += " READ ONLY" if read_only else " READ WRITE"
    if deferrable is not None:
        words += " DEFERRABLE" if deferrable else " NOT DEFERRABLE"
    return words


class Pool(Protocol):
    """What lends connections. What is given back is idle, or closed, and then not lent again."""

    async def take(self) -> Link: ...

    async def give(self, link: Link) -> None: ...

    async def apart(self) -> Link:
        """A new connection that is not counted and never given back."""

    async def check(self) -> None:
        """A connection was found dead: look whether idle ones are, too."""

    async def close(self) -> None:
        """Let go: one of the outbox's own is closed, a user's has all back that it has lent."""


class Lender(Pool, Protocol):
    """Where an executor gets its connections."""

    #: Whether it is known that no pooler stands before the server.
    is_direct: bool

    def abandon(self) -> None: ...


class ListeningConnection(Protocol):
    """A session of its own that listens. One waits at a time; `wake` may be called from any thread."""

    @property
    def is_here(self) -> bool:
        """Whether it can be used from here; under asyncio it belongs to a loop."""

    @property
    def descriptor(self) -> int:
        """The number of its socket."""

    async def is_direct(self) -> bool:
        """Whether the server is reached without a pooler, which would lend the session to others. Raises when the
        server does not answer soon."""

    async def listen(self, channel: str) -> None: ...

    async def wait(self, seconds: float) -> bool:
        """Until something comes in, or `wake` is called. False when the time is over."""

    def take(self) -> list[str]:
        """What has been heard since. Raises when the connection is broken."""

    def wake(self) -> None: ...

    async def close(self) -> None:
        """Whoever waits is woken."""

    def drop(self) -> None:
        """When its event loop has ended."""
