"""What a relay is: the way to one broker or service, as its author writes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, ClassVar

from aftercommit.errors import InvalidOption
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import shown
from aftercommit.relays.message import Message


class Relay(ABC):
    """Publishes messages, and says of each whether the broker has confirmed that it stores it.

    `open`, `close` and `publish` may be plain or async. Async ones run on the loop of AsyncOutbox; under threads on the
    one loop on which all async handlers of an Outbox run. Plain ones run in worker or handler threads.

    An outbox works on a copy (`copy.copy`) of the relay that it was given: one for each start, process and event loop,
    and a new one after an outage. So `__init__` keeps addresses and settings, and whatever is connected, locked or
    bound to a loop is made in `open`.
    """

    #: The id of its handler, unless the user gives one; a second relay of the same kind needs its own.
    name: ClassVar[str]
    #: Other words for `to=`, such as `topic=`.
    words: ClassVar[tuple[str, ...]] = ()
    #: Set it when the connection is gone: this copy is closed, and the next messages go through a new one.
    is_lost: bool = False

    @property
    @abstractmethod
    def where(self) -> str:
        """The broker as people may read of it: its address without the login. When it is away, its circuit opens."""

    def open(self) -> Awaitable[None] | None:
        """Connect. Raise Unavailable(self.where) when the broker is away; called again with a new copy."""
        return None

    @abstractmethod
    def publish(
        self, messages: Sequence[Message]
    ) -> Sequence[BaseException | None] | Awaitable[Sequence[BaseException | None]]:
        """Send all of them, at the same time, and wait for the broker's word on each.

        None: the broker has confirmed that it stores the message. Unavailable(self.where): it is away, which costs no
        attempt; DeadLetter: this message can never be sent; any other error is retried by the handler's policy.
        Unavailable may be raised as well: nothing is known of any of the messages, and the connection is made anew.

        Where the outbox keeps order, no two messages have one key. Several calls may run beside each other.
        """

    def close(self) -> Awaitable[None] | None:
        """Give up the connection, which may be broken, or half made by an `open` that failed. Nothing is being
        published any more."""
        return None

    # ------------------------------------------------------------ where messages go

    def route(self, given: Any) -> Callable[[EventEnvelope], Any]:
        """Read `to=`, when the relay is declared: a value for all events, or a function of the event."""
        if not callable(given):
            place = self.place(given)
            return lambda _: place
        if iscoroutinefunction(given):
            raise InvalidOption(f"to is the async function {shown(given)}", fix="pass a plain function of the event")
        return lambda event: self.place(given(event))

    def place(self, given: Any) -> Any:
        """Check one value of `to=`, or what a function gave for an event; None when it was left out. What comes back
        is `Message.to`. Raise InvalidOption for what makes no sense."""
        return given

    def destination(self, place: Any) -> str:
        """What is called unavailable when messages to this place cannot be sent: has a circuit of its own."""
        return self.where
