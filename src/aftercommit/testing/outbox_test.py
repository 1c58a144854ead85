"""The test kit as users meet it: `outbox_test`, blocking or awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from datetime import datetime
from enum import Enum
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Self, TypeVar, overload

from aftercommit.async_outbox import AsyncOutbox
from aftercommit.errors import NotAwaited
from aftercommit.events.durations import Duration
from aftercommit.events.outcome import Raised
from aftercommit.events.records import DeadEvent
from aftercommit.outbox import Outbox
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.testing.bench import Bench
from aftercommit.testing.process import Drained, Failure, Point
from aftercommit.testing.written import Written
from aftercommit.writing.compose import MISSING

T = TypeVar("T")
_NOTHING: Mapping[str, object] = {}


class _Kit:
    """What needs no waiting in either colour."""

    def __init__(self, outbox: Outbox | AsyncOutbox) -> None:
        self._bench = Bench(outbox)

    @property
    def outbox(self) -> Any:
        """The outbox under test. Until the end of the test its events are where the kit has led it to."""
        return self._bench.outbox

    @property
    def url(self) -> str:
        """The temporary SQLite file, for an engine whose sessions write events: `create_engine(outbox_test.url)`."""
        return self._bench.url

    @property
    def now(self) -> datetime:
        """What the database's clock says in this test. It stands still until the test moves it on."""
        return self._bench.clock.now

    def advance(self, by: Duration) -> datetime:
        """Move the clock on; what falls due by that is delivered by the next drain()."""
        return self._bench.advance(by)

    def fail(self, handler: object, error: BaseException | type[BaseException], *, times: int | None = None) -> Failure:
        """Let a handler, a listener or a fallback raise this instead of running: each time, or so many times.

        It is named by itself or by its id. As a context manager the failure ends with the block.
        """
        return self._bench.fail(handler, error, times)

    def crash_at(self, point: Point) -> None:
        """Let the process die in the next drain(): "after_claim", "after_handler" or "before_settle".

        What it held in memory is lost and nothing of it is written any more; the drain() after it is another process,
        which gets the events again when the leases of the dead one are over.
        """
        self._bench.crash_at(point)

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Lead the outbox back to where it was, and remove what the kit has made."""
        self._bench.close()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


class OutboxTest(_Kit):
    """The kit for a test that is no coroutine, over an Outbox or an AsyncOutbox.

    >>> outbox = Outbox("postgresql://somewhere/shop")
    >>> _ = outbox.register("OrderPlaced", lambda event: print(event.payload_json))
    >>> with OutboxTest(outbox) as outbox_test:
    ...     event_id = outbox_test.write("OrderPlaced", {"order_id": 7}, deliver_after="1h")
    ...     written = outbox_test.assert_written("OrderPlaced", order_id=7)
    ...     outbox_test.drain(advance="1d").delivered
    {"order_id":7}
    1
    """

    def __init__(self, outbox: Outbox | AsyncOutbox) -> None:
        super().__init__(outbox)
        self._run: Callable[[Coroutine[Any, Any, Any]], Any] = run
        if outbox._colour is Colour.ASYNC:
            from aftercommit.runtime.portal import LoopPortal  # noqa: PLC0415  (which brings asyncio along)

            self._portal = LoopPortal()
            self._run = self._on_loop

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Async handlers get a loop of the kit's, the same one all through the test."""
        from aftercommit.runtime.colours import awaited  # noqa: PLC0415

        result = self._portal.call(awaited(self._on_loop, work), copy_context())
        if isinstance(result, Raised):
            raise result.error
        value: Any = result.value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        super().close()
        if self._run is not run:
            self._portal.close()

    def join(self, session: Any) -> None:
        """Work in the transaction that a SQLAlchemy session or connection has open, which the test rolls back."""
        self._run(self._bench.join(session))

    def write(self, event: Any, payload: Any = MISSING, **options: Any) -> str | None:
        """As outbox.write(), in a transaction that is committed at once, or in the one that was joined."""
        event_id: str | None = self._run(self._bench.write(event, payload, options))
        return event_id

    @overload
    def written(self, kind: type[T], /) -> list[Written[T]]: ...
    @overload
    def written(self, kind: str | Enum | None = None, /) -> list[Written[Any]]: ...
    def written(self, kind: Any = None, /) -> list[Written[Any]]:
        """The events that were written, in order; those of a class or a type."""
        found: list[Written[Any]] = self._run(self._bench.written(kind))
        return found

    @overload
    def assert_written(
        self,
        kind: type[T],
        fields: Mapping[str, object] = ...,
        /,
        *,
        count: int | None = ...,
        key: object = ...,
        headers: Mapping[str, str] | None = ...,
        **more: object,
    ) -> list[Written[T]]: ...
    @overload
    def assert_written(
        self,
        kind: object,
        fields: Mapping[str, object] = ...,
        /,
        *,
        count: int | None = ...,
        key: object = ...,
        headers: Mapping[str, str] | None = ...,
        **more: object,
    ) -> list[Written[Any]]: ...
    def assert_written(
        self,
        kind: Any,
        fields: Mapping[str, object] = _NOTHING,
        /,
        *,
        count: int | None = None,
        key: object = None,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> list[Written[Any]]:
        """That an event of this class or type, with these fields, was written: at least one, or `count` of them.

        Instead of a class an object may be given, which the payload has to equal. Fields that are called like one of
        the keywords are given as a mapping. What was found is returned.
        """
        __tracebackhide__ = True
        asked = self._bench.assert_written(kind, {**fields, **more}, count=count, key=key, headers=headers)
        found: list[Written[Any]] = self._run(asked)
        return found

    def assert_nothing_written(self, kind: type | str | Enum | None = None) -> None:
        """That no event was written, or none of this class or type."""
        __tracebackhide__ = True
        self._run(self._bench.assert_nothing_written(kind))

    def dead(self) -> list[DeadEvent]:
        """The events that are dead, each with its last error."""
        found: list[DeadEvent] = self._run(self._bench.dead())
        return found

    def drain(self, *, advance: Duration | None = None) -> Drained:
        """Deliver until nothing is due; with `advance`, everything that falls due within that time, at its time."""
        __tracebackhide__ = True
        result: Drained = self._run(self._bench.drain(advance))
        return result


class AsyncOutboxTest(_Kit):
    """The kit for an `async def` test over an AsyncOutbox: what looks into the table is awaited."""

    def __init__(self, outbox: AsyncOutbox) -> None:
        super().__init__(outbox)
        self._asked: list[tuple[str, Coroutine[Any, Any, Any]]] = []

    def _noted(self, name: str, asked: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        self._asked.append((name, asked))
        return asked

    def close(self) -> None:
        super().close()
        forgotten = [(name, asked) for name, asked in self._asked if getcoroutinestate(asked) == CORO_CREATED]
        for _, asked in forgotten:
            asked.close()
        if forgotten:
            names = ", ".join(f"{name}()" for name, _ in forgotten)
            raise NotAwaited(
                f"{names} of outbox_test was never awaited, so nothing was tested by it",
                fix=f"await outbox_test.{forgotten[0][0]}(…)",
            )

    def join(self, session: Any) -> Coroutine[Any, Any, None]:
        """Work in the transaction that a SQLAlchemy session or connection has open, which the test rolls back."""
        return self._noted("join", self._bench.join(session))

    def write(self, event: Any, payload: Any = MISSING, **options: Any) -> Coroutine[Any, Any, str | None]:
        """As outbox.write(), in a transaction that is committed at once, or in the one that was joined."""
        return self._noted("write", self._bench.write(event, payload, options))

    @overload
    def written(self, kind: type[T], /) -> Coroutine[Any, Any, list[Written[T]]]: ...
    @overload
    def written(self, kind: str | Enum | None = None, /) -> Coroutine[Any, Any, list[Written[Any]]]: ...
    def written(self, kind: Any = None, /) -> Coroutine[Any, Any, list[Written[Any]]]:
        """The events that were written, in order; those of a class or a type."""
        return self._noted("written", self._bench.written(kind))

    @overload
    def assert_written(
        self,
        kind: type[T],
        fields: Mapping[str, object] = ...,
        /,
        *,
        count: int | None = ...,
        key: object = ...,
        headers: Mapping[str, str] | None = ...,
        **more: object,
    ) -> Coroutine[Any, Any, list[Written[T]]]: ...
    @overload
    def assert_written(
        self,
        kind: object,
        fields: Mapping[str, object] = ...,
        /,
        *,
        count: int | None = ...,
        key: object = ...,
        headers: Mapping[str, str] | None = ...,
        **more: object,
    ) -> Coroutine[Any, Any, list[Written[Any]]]: ...
    def assert_written(
        self,
        kind: Any,
        fields: Mapping[str, object] = _NOTHING,
        /,
        *,
        count: int | None = None,
        key: object = None,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> Coroutine[Any, Any, list[Written[Any]]]:
        """That an event of this class or type, with these fields, was written: at least one, or `count` of them.

        Instead of a class an object may be given, which the payload has to equal. Fields that are called like one of
        the keywords are given as a mapping. What was found is returned.
        """
        asked = self._bench.assert_written(kind, {**fields, **more}, count=count, key=key, headers=headers)
        return self._noted("assert_written", asked)

    def assert_nothing_written(self, kind: type | str | Enum | None = None) -> Coroutine[Any, Any, None]:
        """That no event was written, or none of this class or type."""
        return self._noted("assert_nothing_written", self._bench.assert_nothing_written(kind))

    def dead(self) -> Coroutine[Any, Any, list[DeadEvent]]:
        """The events that are dead, each with its last error."""
        return self._noted("dead", self._bench.dead())

    def drain(self, *, advance: Duration | None = None) -> Coroutine[Any, Any, Drained]:
        """Deliver until nothing is due; with `advance`, everything that falls due within that time, at its time."""
        return self._noted("drain", self._bench.drain(advance))


def of_test(outbox: Any, *, is_async: bool) -> OutboxTest | AsyncOutboxTest:
    """The kit in the colour of a test."""
    if is_async and isinstance(outbox, AsyncOutbox):
        return AsyncOutboxTest(outbox)
    return OutboxTest(outbox)
