"""Who receives an event: registries that map (aggregate type, event type) to listeners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Self, cast, overload

from aftercommit.errors import DuplicateListener, InvalidListener
from aftercommit.events.names import GLOBAL, described, name_of, route_name
from aftercommit.handlers.signatures import refuse_uncallable
from aftercommit.hooks import EventListener, Listener


class DefaultListenerRegistry:
    """One listener for each (aggregate type, event type); `__GLOBAL__` where no aggregate type is named."""

    def __init__(self) -> None:
        #: Nothing leaves it.
        self.listeners: dict[tuple[str, str], Listener] = {}

    @overload
    def register(self, event_type: str | Enum, listener: Listener, /) -> Self: ...
    @overload
    def register(self, aggregate_type: str | Enum, event_type: str | Enum, listener: Listener, /) -> Self: ...
    def register(self, *route_and_listener: Any) -> Self:
        """`register(event_type, listener)` or `register(aggregate_type, event_type, listener)`."""
        if len(route_and_listener) == 2:
            route_and_listener = (GLOBAL, *route_and_listener)
        if len(route_and_listener) != 3:
            raise TypeError("register() takes (event_type, listener) or (aggregate_type, event_type, listener)")
        aggregate_type = name_of(route_and_listener[0], "aggregate_type", 64)
        event_type = name_of(route_and_listener[1], "event_type", 128)
        route, listener = (aggregate_type, event_type), checked(route_and_listener[2])
        if route in self.listeners:
            raise DuplicateListener(
                f"{route_name(*route)} has the listener {described(self.listeners[route])} already; "
                f"{described(listener)} cannot be a second one",
                fix="call both from one listener, or use MultiListenerRegistry",
            )
        self.listeners[route] = listener
        return self

    def listener_for(self, aggregate_type: str, event_type: str) -> Listener | None:
        return self.listeners.get((aggregate_type, event_type))

    def route_names(self) -> list[str]:
        """What there are listeners for."""
        return [route_name(*route) for route in self.listeners]

    def __len__(self) -> int:
        return len(self.listeners)


class MultiListenerRegistry:
    """Several listeners for an event type, whatever the aggregate, then those for all events, each in order of
    registration. They share one row: when one fails, the attempt fails and all run again."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}
        self._wildcards: list[Listener] = []

    def register(self, event_type: str | Enum, listener: Listener) -> Self:
        self._listeners.setdefault(name_of(event_type, "event_type", 128), []).append(checked(listener))
        return self

    def register_all(self, listener: Listener) -> Self:
        """A listener for every event."""
        self._wildcards.append(checked(listener))
        return self

    def listener_for(self, aggregate_type: str, event_type: str) -> Sequence[Listener] | None:
        return (*self._listeners.get(event_type, ()), *self._wildcards) or None

    def route_names(self) -> list[str]:
        """What there are listeners for by name."""
        return list(self._listeners)

    def __len__(self) -> int:
        return len(self._listeners) + len(self._wildcards)


def checked(listener: Any) -> Listener:
    """The listener, if calling it runs its body."""
    if isinstance(listener, type) and hasattr(listener, "on_event"):
        raise InvalidListener(
            f"the listener {listener.__name__} is a class, and only an object of it hears events",
            fix=f"register {listener.__name__}(…)",
        )
    refuse_uncallable(called(listener), "listener", InvalidListener)
    return listener  # type: ignore[no-any-return]


def called(listener: Listener) -> Callable[..., object]:
    """What is called with an event: the listener itself, or its `on_event`."""
    # Asked of its class, because a mock has every attribute, and most mocks stand for functions.
    if hasattr(listener.__class__, "on_event"):
        return cast("EventListener", listener).on_event
    return cast("Callable[..., object]", listener)
