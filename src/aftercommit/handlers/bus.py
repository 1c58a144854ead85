"""The in-process bus: what is published goes to subscribers here and now, and, if marked, into the outbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isasyncgen, isawaitable, iscoroutine, iscoroutinefunction, isgenerator
from typing import Any

from aftercommit.errors import ColourMismatch, InvalidListener, InvalidPayloadType
from aftercommit.events.classes import marks_of
from aftercommit.events.ids import EventId, EventIds
from aftercommit.events.names import described
from aftercommit.handlers.signatures import refuse_uncallable
from aftercommit.ports import Colour


class Bus:
    """Subscribers of one outbox, run by the publisher, in its own thread or task and in its transaction.

    What a subscriber raises reaches the publisher, whose transaction then rolls back. Under asyncio subscribers may be
    `async def`; in threads they are plain functions.
    """

    def __init__(
        self,
        colour: Colour,
        *,
        enabled: bool = True,
        publish_after_save: bool = True,
        handlers_for: Callable[[type], Sequence[str]] = lambda _: (),
    ) -> None:
        """Not `enabled`, marked objects go to subscribers only, like all others. Without `publish_after_save`
        marked objects go to the outbox only. `handlers_for` a class are those who wait for its events."""
        self._colour = colour
        self._handlers_for = handlers_for
        self._enabled = enabled
        self._publish_after_save = publish_after_save
        self._subscribers: list[tuple[type, Callable[[Any], object]]] = []

    def subscribe(self, kind: type, subscriber: Any = None) -> Any:
        """Call a function with every published object of the class or of a subclass; also as a decorator."""
        if not isinstance(kind, type):
            raise InvalidPayloadType(f"subscribe() got {kind!r}, which is no class", fix="subscribe(OrderPlaced, fn)")
        if subscriber is None:
            return lambda function: self.subscribe(kind, function)
        refuse_uncallable(subscriber, "subscriber", InvalidListener)
        # The second look finds objects with an async __call__, which the first one does not.
        is_async = any(map(iscoroutinefunction, (subscriber, getattr(subscriber, "__call__", None))))  # noqa: B004
        if self._colour is Colour.BLOCKING and is_async:
            raise ColourMismatch(
                f"the subscriber {described(subscriber)} is async, and Outbox publishes in the caller's thread",
                fix="write it as plain def, or use AsyncOutbox",
            )
        self._subscribers.append((kind, subscriber))
        return subscriber

    def writes(self, value: object) -> bool:
        """Whether publishing this object writes it to the outbox, which needs a transaction."""
        if isinstance(value, type):
            raise InvalidPayloadType(
                f"publish() got the class {value.__name__} instead of an object of it", fix=f"{value.__name__}(…)"
            )
        return self._enabled and marks_of(type(value)) is not None

    async def publish(self, value: object, write: Callable[[], Awaitable[str | None]]) -> str | None:
        """Write the object, if its class is marked, then pass it on. The event id, None when nothing was written.

        `write` writes this very object in the publisher's transaction, and raises without one.
        """
        if not self.writes(value):
            if not await self._pass_on(value):
                self._refuse_unheard(type(value))
            return None
        event_id = await write()
        if self._publish_after_save:
            await self._pass_on(value)
        return event_id

    def _refuse_unheard(self, kind: type) -> None:
        """An object that no subscriber takes is nobody's business, unless somebody waits for its event."""
        if self._enabled and (waiting := self._handlers_for(kind)):
            raise InvalidPayloadType(
                f"publish() got a {kind.__name__}, which nobody subscribes to, and its handlers get nothing "
                f"({', '.join(waiting)}): only objects of classes with @outbox_event are written to the outbox",
                fix=f"put @outbox_event on {kind.__name__}, or use outbox.write()",
            )

    async def _pass_on(self, value: object) -> bool:
        """Whether anybody takes it."""
        is_taken = False
        for kind, subscriber in tuple(self._subscribers):
            if not isinstance(value, kind):
                continue
            is_taken = True
            # Neither copied context nor other thread: the subscriber is part of the publisher's transaction.
            returned = subscriber(value)
            if isinstance(returned, EventId | EventIds):  # of what it wrote; that it can be awaited means nothing
                continue
            while isawaitable(returned) and self._colour is Colour.ASYNC:
                returned = await returned
            if isawaitable(returned) or isgenerator(returned) or isasyncgen(returned):
                if iscoroutine(returned):
                    returned.close()
                what = type(returned).__name__
                raise InvalidListener(
                    f"the subscriber {described(subscriber)} returned a {what}, so its body has not run",
                    fix="write it as plain def that returns, or use AsyncOutbox for async def",
                )
        return is_taken
