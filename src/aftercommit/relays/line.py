"""A relay in use: the copy that is connected, made when it is first needed and anew when its connection is gone."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from aftercommit.errors import OutboxError
from aftercommit.events.log import Log
from aftercommit.events.outcome import Unavailable
from aftercommit.events.redact import error_text, redact
from aftercommit.relays.message import Message
from aftercommit.relays.relay import Relay

log = Log("aftercommit.relays")

Answers = Sequence[BaseException | None]

#: Copies of a parent's, in a forked child: what they hold must not be collected, which might speak to the broker.
_inherited: Final[list[object]] = []


class Connected:
    """One copy, and how many calls are in it. It is closed when it is lost or not wanted, and the last one has left."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.users = 0
        self.is_lost = False

    @property
    def is_good(self) -> bool:
        return not self.is_lost and not self.relay.is_lost

    @property
    def is_over(self) -> bool:
        return self.users == 0 and not self.is_good


class Line(ABC):
    """The way to the broker of one declared relay. `open` and `close` are called by whoever starts and stops an outbox,
    `publish` by its handlers, as functions of a user's are called."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.name = relay.name
        self._is_told = False

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether there is something to close."""

    @abstractmethod
    def open(self) -> Any: ...

    @abstractmethod
    def close(self) -> Any: ...

    @abstractmethod
    def publish(self, messages: Sequence[Message]) -> Any: ...

    @abstractmethod
    def abandon(self) -> None:
        """In a forked child: forget the parent's connections, without a word to anybody."""

    def _refuse(self, error: BaseException) -> NoReturn:
        """Raise what an `open` that failed means: the broker cannot be used, which is no event's fault. Said once."""
        where = redact(self.relay.where)
        if not self._is_told and isinstance(error, Exception):
            self._is_told = True
            cause = error.__cause__ if isinstance(error, Unavailable) and error.__cause__ else error
            log.warning("%s: cannot connect to %s: %s", self.name, where, error_text(cause))
        if isinstance(error, OutboxError) or not isinstance(error, Exception):
            raise error
        raise Unavailable(self.relay.where) from error

    def _connected(self) -> None:
        self._is_told = False
        log.info("%s: connected to %s", self.name, redact(self.relay.where))


class BlockingLine(Line):
    """Of a relay whose methods are plain functions: from any thread."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self._begin()

    def _begin(self) -> None:
        self._opening = threading.Lock()
        self._counting = threading.Lock()
        self._current: Connected | None = None
        self._failed, self._failure = 0, None

    _failed: int
    _failure: BaseException | None

    @property
    def is_open(self) -> bool:
        return self._current is not None

    def open(self) -> None:
        with suppress(Exception):  # it was said, and the first messages try again
            self._leave(self._enter())

    def publish(self, messages: Sequence[Message]) -> Answers:
        used = self._enter()
        try:
            return used.relay.publish(messages)  # type: ignore[return-value]
        except Unavailable:
            used.is_lost = True
            raise
        finally:
            self._leave(used)

    def close(self) -> None:
        with self._opening:
            self._retire()

    def abandon(self) -> None:
        _inherited.append(self._current)
        self._begin()

    def _enter(self) -> Connected:
        seen = self._failed
        with self._opening:
            if self._current is None or not self._current.is_good:
                if self._failure is not None and self._failed != seen:  # while we waited for our turn
                    raise Unavailable(self.relay.where) from self._failure
                self._retire()
                self._current = self._connect()
            with self._counting:
                self._current.users += 1
            return self._current

    def _connect(self) -> Connected:
        relay = copy(self.relay)
        try:
            relay.open()
        except BaseException as error:
            self._failed, self._failure = self._failed + 1, error
            with suppress(Exception):
                relay.close()
            self._refuse(error)
        self._failure = None
        self._connected()
        return Connected(relay)

    def _leave(self, used: Connected) -> None:
        with self._counting:
            used.users -= 1
            is_last = used.is_over and used is not self._current
        if is_last:
            _close(used.relay)

    def _retire(self) -> None:
        """With nobody opening meanwhile."""
        with self._counting:
            used, self._current = self._current, None
            if used is None:
                return
            used.is_lost = True
            is_last = used.is_over
        if is_last:
            _close(used.relay)


def _close(relay: Relay) -> None:
    try:
        relay.close()
    except Exception as error:  # of a connection that is broken, perhaps
        log.debug("%s: closing failed: %s", relay.name, error_text(error))


class OnLoop:
    """What an async relay has on one event loop."""

    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.current: Connected | None = None
        self.failed = 0
        self.failure: BaseException | None = None


class AsyncLine(Line):
    """Of a relay that has an async method; each loop has a copy of its own."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, OnLoop] = WeakKeyDictionary()

    @property
    def is_open(self) -> bool:
        return any(each.current is not None for each in tuple(self._loops.values()))

    async def open(self) -> None:
        with suppress(Exception):  # it was said, and the first messages try again
            here = self._here()
            await self._leave(here, await self._enter(here))

    async def publish(self, messages: Sequence[Message]) -> Answers:
        here = self._here()
        used = await self._enter(here)
        try:
            return await _awaited(used.relay.publish(messages))  # type: ignore[no-any-return]
        except Unavailable:
            used.is_lost = True
            raise
        finally:
            await self._leave(here, used)

    async def close(self) -> None:
        here = self._here()
        async with here.opening:
            await self._retire(here)

    def abandon(self) -> None:
        _inherited.append(dict(self._loops))
        self._loops = WeakKeyDictionary()

    def _here(self) -> OnLoop:
        return self._loops.setdefault(asyncio.get_running_loop(), OnLoop())

    async def _enter(self, here: OnLoop) -> Connected:
        if here.current is not None and here.current.is_good:  # as nearly always
            here.current.users += 1
            return here.current
        seen = here.failed
        async with here.opening:
            if here.current is None or not here.current.is_good:
                if here.failure is not None and here.failed != seen:  # while we waited for our turn
                    raise Unavailable(self.relay.where) from here.failure
                await self._retire(here)
                here.current = await self._connect(here)
            here.current.users += 1
            return here.current

    async def _connect(self, here: OnLoop) -> Connected:
        relay = copy(self.relay)
        try:
            await _awaited(relay.open())
        except BaseException as error:
            here.failed, here.failure = here.failed + 1, error
            with suppress(Exception):
                await _awaited(relay.close())
            self._refuse(error)
        here.failure = None
        self._connected()
        return Connected(relay)

    async def _leave(self, here: OnLoop, used: Connected) -> None:
        used.users -= 1
        if used.is_over and used is not here.current:
            await _close_async(used.relay)

    async def _retire(self, here: OnLoop) -> None:
        used, here.current = here.current, None
        if used is not None:
            used.is_lost = True
            if used.is_over:
                await _close_async(used.relay)


async def _close_async(relay: Relay) -> None:
    try:
        await _awaited(relay.close())
    except Exception as error:  # of a connection that is broken, perhaps
        log.debug("%s: closing failed: %s", relay.name, error_text(error))


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value


def line_of(relay: Relay) -> Line:
    """In the colour of its methods."""
    is_async = any(map(iscoroutinefunction, (relay.open, relay.publish, relay.close)))
    return AsyncLine(relay) if is_async else BlockingLine(relay)
