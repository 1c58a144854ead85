"""What the kit does, written once for both colours: it leads an outbox to a table of the test's own, looks into it, and
delivers when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from aftercommit.base import OutboxBase
from aftercommit.errors import InvalidOption, closest
from aftercommit.events.durations import Duration, duration
from aftercommit.events.records import DeadEvent
from aftercommit.handlers.handler import AnyHandler, Handler
from aftercommit.handlers.listeners import DefaultListenerRegistry, MultiListenerRegistry, called
from aftercommit.polling.filters import filter_of
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.testing.clock import VirtualClock
from aftercommit.testing.places import Place, TemporaryFile, led_to, place_for, still_runtime, value_of
from aftercommit.testing.process import POINTS, Drained, Failure, Point, Process, Watch
from aftercommit.testing.written import Expected, Row, Written, listed, missing_text, type_of, written_in
from aftercommit.writing.compose import MISSING

#: What falls due within one drain(). An event that asks again and again would go on for ever.
_MOMENTS_AT_MOST: Final = 10_000
_DEAD_AT_MOST: Final = 10_000


class Bench:
    """One outbox under test. Made and closed without waiting for anything."""

    def __init__(self, outbox: OutboxBase) -> None:
        if not isinstance(outbox, OutboxBase):
            raise InvalidOption(
                f"the outbox under test is a {type(outbox).__module__}.{type(outbox).__qualname__}",
                fix="pass the Outbox or AsyncOutbox of your program",
            )
        self.outbox = outbox
        self.clock = VirtualClock()
        self.watch = Watch()
        self._process: Process | None = None
        self._point: Point | None = None
        self._has_died = False
        self._stack = ExitStack()
        try:
            self._settle(place_for(outbox))
        except BaseException:
            self._stack.close()
            raise

    def _settle(self, place: Place) -> None:
        """Lead the outbox there, with another store than the kit's own: each may be used on a loop of its own."""
        self.place = place
        self._stack.callback(place.close)
        its, own = place.open(self.outbox, self.clock), place.open(self.outbox, self.clock)
        self._store, self._table = own.store, own.table
        self._stack.enter_context(led_to(self.outbox, its.store, self.clock))

    def close(self) -> None:
        if self._process is not None:
            run(self._process.runtime.close())  # which waits for nothing, in either colour
        self._stack.close()

    @property
    def url(self) -> str:
        if not isinstance(self.place, TemporaryFile):
            raise InvalidOption(
                "there is a url only where the kit has a file of its own", fix="use the database that the test has"
            )
        return self.place.url

    async def join(self, handle: Any) -> None:
        from aftercommit.testing.joined import JoinedTransaction  # noqa: PLC0415  (whoever has a session has it)

        place = JoinedTransaction(handle, self.outbox._colour)
        self._stack.close()
        self._settle(place)
        self._process = None
        await self._store.open()
        await self.outbox._store.open()

    # ------------------------------------------------------------ looking

    async def rows(self) -> list[Row]:
        return await self._table.rows()

    async def written(self, kind: Any = None) -> list[Written[Any]]:
        found = written_in(await self.rows(), self.outbox._payloads, kind)
        return found if kind is None else [each for each in found if each.event.event_type == type_of(kind)]

    async def assert_written(
        self,
        kind: Any,
        given: Mapping[str, object],
        *,
        count: int | None,
        key: object,
        headers: Mapping[str, str] | None,
    ) -> list[Written[Any]]:
        __tracebackhide__ = True
        expected = Expected(kind, given, key, headers)
        everything = written_in(await self.rows(), self.outbox._payloads, expected.kind)
        same = [each for each in everything if each.event.event_type == expected.name]
        found = [each for each in same if not expected.differences(each)]
        if len(found) == count or (count is None and found):
            return found
        raise AssertionError(missing_text(expected, count, len(found), everything))

    async def assert_nothing_written(self, kind: Any) -> None:
        __tracebackhide__ = True
        if found := await self.written(kind):
            what = "nothing" if kind is None else f"no {type_of(kind)}"
            raise AssertionError("\n".join([f"{what} was to be written", *listed(found)]))

    async def dead(self) -> list[DeadEvent]:
        await self._store.open()
        return await self._store.records.query_dead(filter_of(), _DEAD_AT_MOST, None)

    # ------------------------------------------------------------ writing

    async def write(self, event: Any, payload: Any, options: Mapping[str, Any]) -> str | None:
        """In a transaction of its own, or in the one that was joined."""
        outbox: Any = self.outbox
        given = (event,) if payload is MISSING else (event, payload)
        event_id: str | None
        if self.place.tx is not None:
            event_id = await value_of(outbox.write(*given, tx=self.place.tx, **options))
        elif outbox._colour is Colour.ASYNC:
            async with outbox.transaction():
                event_id = await outbox.write(*given, **options)
        else:
            with outbox.transaction():
                event_id = outbox.write(*given, **options)
        return event_id

    # ------------------------------------------------------------ steering

    def fail(self, handler: Any, error: BaseException | type[BaseException], times: int | None) -> Failure:
        if not isinstance(error, BaseException) and BaseException not in getattr(error, "__mro__", ()):
            raise InvalidOption(f"fail() was given {error!r}", fix="pass an exception, or its class")
        if times is not None and times < 1:
            raise InvalidOption(f"fail() was told to fail {times} times", fix="pass 1 or more, or leave times out")
        functions = self._functions_of(handler)
        failure = Failure(getattr(functions[0], "__name__", repr(handler)), error, times)
        self.watch.failures += [(function, failure) for function in functions]
        return failure

    def _functions_of(self, handler: Any) -> Sequence[Callable[..., object]]:
        """What the engine calls, by what a test may call it."""
        roster = self.outbox._roster
        handlers = list(roster.handlers.values())
        if isinstance(handler, str):
            named = roster.named(handler)
            found = [] if named is None else [named.function]
        else:
            functions = [*(each.function for each in handlers), *self._others(), *self._listeners()]
            found = [function for function in functions if _is_meant(function, handler)]
        if not found and (isinstance(handler, str) or not self._has_foreign_registry()):
            name = handler if isinstance(handler, str) else getattr(handler, "__name__", repr(handler))
            near = closest(name, roster.names())
            known = ", ".join(roster.names()) or "none"
            raise InvalidOption(
                f"{name} is no handler of the outbox under test, so it cannot be made to fail"
                + (f"; the closest is {near}" if near else f"; known are: {known}"),
                fix="pass the handler itself, or its id",
            )
        return found or [called(handler)]

    def _listeners(self) -> list[Callable[..., object]]:
        registry = self.outbox._registry
        if isinstance(registry, DefaultListenerRegistry):
            return [called(each) for each in registry.listeners.values()]
        if isinstance(registry, MultiListenerRegistry):
            of_types = [each for several in registry._listeners.values() for each in several]
            return [called(each) for each in (*of_types, *registry._wildcards)]
        return []

    def _has_foreign_registry(self) -> bool:
        return not isinstance(self.outbox._registry, DefaultListenerRegistry | MultiListenerRegistry)

    def _others(self) -> list[Callable[..., object]]:
        """Functions of the user whose calls are no attempts: fallbacks and interceptors."""
        roster = self.outbox._roster
        bound = [each.bound_fallback for each in roster.handlers.values() if each.bound_fallback is not None]
        fallbacks = [each.function for each in (*roster.fallbacks, *bound)]
        interceptors = self.outbox.config.interceptors
        return [
            *fallbacks,
            *(method for each in interceptors for method in (each.before_dispatch, each.after_dispatch)),
        ]

    def crash_at(self, point: Point) -> None:
        if point not in POINTS:
            raise InvalidOption(f"crash_at() was given {point!r}", fix=f"use one of {', '.join(POINTS)}")
        self._point = point

    def advance(self, by: Duration) -> datetime:
        self.clock.move_on(duration(by, name="advance"))
        return self.clock.now

    # ------------------------------------------------------------ delivering

    async def drain(self, advance: Duration | None) -> Drained:
        __tracebackhide__ = True
        self.outbox._needs_delivery("drain")
        by = timedelta(0) if advance is None else duration(advance, name="advance")
        if self._has_died:
            await self._outlive()
        until = self.clock.now + by
        self.watch.begin()
        self.watch.others = self._others()
        crashed = await self._deliver_until(until)
        for error in self.watch.errors:
            if any(each.__module__ == "_pytest.outcomes" for each in type(error).__mro__):
                raise error  # pytest.fail() in a handler is meant for the test
        return Drained.of(self.watch, crashed=crashed)

    async def _outlive(self) -> None:
        """Until the leases are over that the dead process has left behind."""
        self._has_died = False
        for row in await self.rows():
            if row.is_unfinished and row.leased_until is not None:
                self.clock.move_to(row.leased_until)

    async def _deliver_until(self, until: datetime) -> bool:
        """Everything at the moment when it is due, and not before; whether the process has died of it."""
        __tracebackhide__ = True
        for _ in range(_MOMENTS_AT_MOST):
            process = self._living()
            await process.drain()
            if process.store.is_dead:
                self._process, self._point, self._has_died = None, None, True
                return True
            moments = [row.next_at for row in await self.rows() if row.is_unfinished]
            later = [moment for moment in moments if self.clock.now < moment <= until]
            if not later:
                self.clock.move_to(until)
                self._refuse_unreached()
                return False
            self.clock.move_to(min(later))
        waiting = [row.event for row in await self.rows() if row.is_unfinished]
        raise AssertionError(
            f"events fell due {_MOMENTS_AT_MOST} times in one drain, and would go on: {waiting[:3]!r}; "
            "advance by less, or let the handler come to an end"
        )

    def _living(self) -> Process:
        process = self._process
        if process is None or not process.runtime.is_here():
            config = replace(self.outbox.config, skip_recent=timedelta(0))
            runtime = still_runtime(self.outbox, self.place, self.clock, self.watch)
            process = self._process = Process(runtime, self._store, self.watch, self.outbox._router, config)
        process.store.dies = self._point
        return process

    def _refuse_unreached(self) -> None:
        """A test of a crash that never came would prove nothing."""
        __tracebackhide__ = True
        point, self._point = self._point, None
        if point is not None:
            raise AssertionError(f"nothing came as far as {point!r}: no event was due, or none has a handler")


def _is_meant(function: Any, handler: Any) -> bool:
    """Whether a test that names a handler, a method of a class, an object or a listener means this function."""
    if isinstance(handler, Handler):
        declared: AnyHandler = handler
        return function == declared.function or getattr(function, "__func__", None) is declared.function
    if isinstance(handler, Enum) or not callable(handler):
        return getattr(function, "__self__", None) is handler
    return function in (handler, called(handler)) or getattr(function, "__self__", None) is handler
