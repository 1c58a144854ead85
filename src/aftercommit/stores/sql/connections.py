"""Connections of the store's own: how many, how long to wait for one, how often to try again, and who has them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from stat import S_ISSOCK
from typing import Any, Final, Generic, Protocol, TypeVar

from aftercommit.errors import StoreBusy
from aftercommit.ports import Colour, OpenTransaction, Tx
from aftercommit.stores.sql.execution import Fault

T = TypeVar("T")

#: Connections that a pool of the outbox's own opens at most; transactions of the user's count, too.
LARGEST: Final = 20

#: Seconds to wait for a free one. Shorter than a lease and longer than a lock wait: whoever holds one behind somebody
#: else's lock comes to an end before, and a worker that finds none hears of it before it has lost what it holds.
PATIENCE: Final = 10.0

#: How often a deadlock or a serialisation failure is answered by another try. MySQL makes the same transaction the
#: victim several times in a row when many write the same keys; a try costs little, and an error reaches the user.
TRIES: Final = 10

#: Connections of a parent process. Closing them here could undo what the parent does on them; they are kept for ever.
abandoned: Final[list[object]] = []


def cut(link: Any) -> None:
    """In a forked child: give up its copy of the socket of a connection, and say nothing to the server. With a copy
    open it would not hear of the parent's death, and would keep the rows of a transaction locked. The number stays
    taken, by nothing: the driver believes that it is its own."""
    with suppress(Exception):  # it is closed, or has no socket
        descriptor = link.descriptor
        if S_ISSOCK(os.fstat(descriptor).st_mode):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, descriptor, inheritable=False)
            os.close(nothing)


async def retrying(attempt: Callable[[], Coroutine[Any, Any, T]], fault_of: Callable[[Exception], Fault]) -> T:
    """The value of the first attempt that meets no conflict: the database has rolled all of it back, and the same again
    is right. Colourless, as what it awaits."""
    for tries_left in reversed(range(TRIES)):
        try:
            return await attempt()
        except Exception as error:
            if not tries_left or fault_of(error) is not Fault.CONFLICT:
                raise
    raise AssertionError("unreachable")


class Pooled(Protocol):
    """What a pool lends: a connection that opens when it is first used, in the colour of the pool."""

    async def close(self) -> None:
        """Close it in good order; it is idle."""

    def drop(self) -> None:
        """Close it without waiting. Never raises, also when it is closed."""


P = TypeVar("P", bound=Pooled)


class Turn(Protocol):
    """Somebody's place in the line before a pool, in either colour."""

    async def comes(self, patience: float) -> None:
        """Wait for `call`, for so many seconds at most."""

    def call(self) -> bool:
        """From any thread. False when whoever waited cannot hear it any more."""


class ThreadTurn:
    """The turn of a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    async def comes(self, patience: float) -> None:
        self._lock.acquire(timeout=patience)

    def call(self) -> bool:
        self._lock.release()
        return True


@dataclass(eq=False)
class Pool(Generic[P]):
    """So many connections at most. Those that come back sound are kept, and whoever finds none free stands in line."""

    _make: Callable[[], P]
    _turn: Callable[[], Turn] = ThreadTurn
    _: KW_ONLY
    largest: int = LARGEST
    fix: str = "keep transactions short"
    #: Whether one that is lent will never come back; None where all do.
    is_lost: Callable[[P], bool] | None = None
    # Reentrant: a signal handler or a finalizer may come here while its own thread is inside.
    _lock: AbstractContextManager[Any] = field(init=False, default_factory=threading.RLock)
    _idle: list[P] = field(init=False, default_factory=list)
    #: What is lent since the last close().
    _lent: set[P] = field(init=False, default_factory=set)
    _line: deque[Turn] = field(init=False, default_factory=deque)
    #: What those have got whose turn has come, until they hear of it.
    _called: dict[Turn, P] = field(init=False, default_factory=dict)

    async def take(self) -> P:
        with self._lock:
            if self._idle or len(self._lent) < self.largest or self._has_lost():
                one = self._idle.pop() if self._idle else self._make()
                if self.is_lost is not None and self.is_lost(one):
                    self.clear()  # it was kept on a loop that has ended, and so were others
                self._lent.add(one)
                return one
            turn = self._turn()
            self._line.append(turn)
        return await self._stand_in_line(turn)

    async def _stand_in_line(self, turn: Turn) -> P:
        try:
            await turn.comes(PATIENCE)
        except BaseException:
            if (one := self._leave_line(turn)) is not None:  # its turn has come while it was cancelled
                await self.give(one)
            raise
        one = self._leave_line(turn)
        if one is None:
            raise StoreBusy(
                f"all {self.largest} connections to the database were in use for {PATIENCE:.0f} s", fix=self.fix
            )
        return one

    def _leave_line(self, turn: Turn) -> P | None:
        with self._lock:
            if turn in self._called:
                return self._called.pop(turn)
            if turn in self._line:  # unless this is a forked child, which has forgotten it
                self._line.remove(turn)
            return None

    def _has_lost(self) -> bool:
        """Under the lock: make room of those that will never come back."""
        lost = set[P]() if self.is_lost is None else {one for one in list(self._lent) if self.is_lost(one)}
        self._lent -= lost
        for one in lost:
            one.drop()
        return bool(lost)

    async def give(self, one: P, *, is_sound: bool = True) -> None:
        """Take it back. One that is not `is_sound` is closed."""
        with self._lock:  # what comes back now is either among those that close() takes, or sees that it is late
            is_kept = is_sound and one in self._lent
            self._lent.discard(one)
            if is_kept:
                self._idle.append(one)
            if self._line:
                self._call_next()
        if not is_kept:
            one.drop()

    def _call_next(self) -> None:
        """Under the lock: whoever stands first gets what is free. So nobody who comes later can pass them by."""
        while self._line and (self._idle or len(self._lent) < self.largest):
            turn = self._line.popleft()
            one = self._idle.pop() if self._idle else self._make()
            if turn.call():
                self._lent.add(one)
                self._called[turn] = one
            else:
                self._idle.append(one)

    def clear(self) -> None:
        """One was found dead, so those that are idle may be, too."""
        with self._lock:
            self._has_lost()
            idle, self._idle = self._idle, []
        for one in idle:
            one.drop()

    async def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        with self._lock:
            idle, self._idle, self._lent = self._idle, [], set()
            self._call_next()
        try:
            for one in idle:
                await one.close()
        finally:  # what was not come to
            for one in idle:
                one.drop()

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone. Its threads may hold the lock, or stand in line."""
        self._lock = threading.RLock()
        abandoned.extend((*self._idle, *self._lent))
        for one in (*self._idle, *self._lent):
            cut(getattr(one, "link", None))
        self._idle, self._lent, self._line, self._called = [], set(), deque(), {}


class Give(Protocol):
    """How a connection is given back."""

    async def __call__(self, one: Any, /, *, is_sound: bool = True) -> None: ...


class Link(Pooled, Protocol):
    """A connection in either colour. It gives itself back when it has done what it was taken for."""

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give, *, writes: bool) -> T: ...

    async def begin(self, give: Give, isolation: str | None = None) -> OpenTransaction: ...


class Lender(Protocol):
    """Where an executor gets its links: a pool of our own, or the user's."""

    async def take(self) -> Link: ...

    async def give(self, one: Any, /, *, is_sound: bool = True) -> None: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


def pools_of_blocking(link: Callable[[], Link], colour: Colour, name: str) -> tuple[Pool[Link], Pool[Link]]:
    """For a driver that blocks: one for the store, one for users. Under asyncio each link lives on a thread, which is
    named after `name`."""
    if colour is Colour.BLOCKING:
        return Pool(link), Pool(link)
    from aftercommit.stores.sql.aio import TaskTurn, ThreadLink  # noqa: PLC0415  (asyncio is loaded when wanted)

    number = count(1)

    def on_thread() -> Link:
        return ThreadLink(link(), f"{name}-{next(number)}")

    return Pool(on_thread, TaskTurn), Pool(on_thread, TaskTurn)


class LinkExecutor:
    """Runs transactions on links, in either colour. The store's own links are not those that users get: users who wait
    for each other never keep the store from its work, and what one sets on a connection is met by users only."""

    #: Whether the database commits a single statement by itself, so that nothing has to be begun for it.
    commits_single = False

    def __init__(self, own: Lender, lent: Lender, colour: Colour) -> None:
        self._own = own
        self._lent = lent
        self.colour = colour

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        writes = writes and not self.commits_single
        return await self.transact(lambda tx: tx.fetch(sql, parameters), writes=writes)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self.transact(lambda tx: tx.execute(sql, parameters), writes=not self.commits_single)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        link = await self._own.take()
        return await link.transact(work, self._own.give, writes=writes)

    async def begin(self, isolation: str | None = None) -> OpenTransaction:
        link = await self._lent.take()
        return await link.begin(self._lent.give, isolation)

    async def close(self) -> None:
        await self._own.close()
        await self._lent.close()

    def abandon(self) -> None:
        self._own.abandon()
        self._lent.abandon()
