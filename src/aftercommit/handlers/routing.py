"""Who receives an event in this process: what register() knows, typed handlers, then generic ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

from aftercommit.errors import UnroutableEvent, closest
from aftercommit.events.annotations import event_type_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import GLOBAL, route_name
from aftercommit.events.outcome import GAVE_UP
from aftercommit.events.payloads import PayloadTypes
from aftercommit.handlers.handler import AnyHandler, Fallback
from aftercommit.handlers.listeners import DefaultListenerRegistry, MultiListenerRegistry, called
from aftercommit.handlers.options import LISTENER_ID, AnyEvent, HandlerSettings, Supports
from aftercommit.handlers.set import Roster
from aftercommit.hooks import Listener, ListenerRegistry
from aftercommit.ports import Effects, Resource

#: One row for all: there is nobody to tell apart here.
_FOR_ALL: Final = ("",)

#: The other cure for an event that nobody here knows.
_LONGER: Final = "a longer unroutable_grace leaves it to other processes for more time"

#: Kinds of events whose routes are remembered. More than any program has.
_KEPT_AT_MOST: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class OfKind(tuple[str, ...]):
    """The rows of any event of a type, as long as nobody is added who receives events."""

    __slots__ = ()


class Route(msgspec.Struct, frozen=True, eq=False):
    """One receiver of events, ready to be called: a handler, or what register() knows for an event."""

    id: str
    #: What is remembered of its destination goes by this name.
    caller: str
    #: Called one after the other, until one of them fails.
    functions: tuple[Callable[..., object], ...]
    handler: AnyHandler | None = None
    options: HandlerSettings | None = None
    #: What the payload is decoded as; None for the envelope itself.
    payload: Any = None
    takes_metadata: bool = False
    timeout: float | None = None
    supports: Supports | None = None
    #: It gets lists of up to so many; None: one event each time.
    batch: int | None = None
    #: Seconds that a batch waits to become full.
    linger: float = 0.0
    #: It has neither limits nor a destination of its own.
    is_free: bool = True
    #: Of a transactional handler: how it is called.
    effects: Effects | None = None
    #: One function gets the envelope and nothing else, for as long as it wants. Known when it is made.
    is_plain: bool = False

    def __post_init__(self) -> None:
        has_more = self.payload is not None or self.takes_metadata or self.effects is not None
        has_more = has_more or (self.timeout, self.batch) != (None, None)
        force_setattr(self, "is_plain", len(self.functions) == 1 and not has_more)

    @classmethod
    def to(cls, handler: AnyHandler, effects: Effects | None = None) -> Route:
        options = handler.settings
        return cls(
            handler.id,
            handler.id,
            (handler.function,),
            handler,
            options,
            payload=None if handler.payload is EventEnvelope else handler.payload,
            takes_metadata=handler.takes_metadata,
            timeout=options.timeout,
            supports=options.supports,
            batch=options.batch,
            linger=options.linger,
            is_free=(options.timeout, options.concurrency, options.rate, options.destination) == (None,) * 4,
            effects=effects,
        )


class Router:
    """Finds the routes of events. What it has found for a kind of event it keeps until a handler is added."""

    def __init__(self, registry: ListenerRegistry, roster: Roster, payloads: PayloadTypes) -> None:
        self._registry = registry
        # Nothing leaves our own registry. One of a user's, or a subclass, may answer otherwise every time.
        self._answers_stay = type(registry) is DefaultListenerRegistry
        self._registered = registry.listeners if isinstance(registry, DefaultListenerRegistry) else {}
        self.roster = roster
        self.payloads = payloads
        #: What handlers need while they are called; opened and closed with the outbox.
        self.resources: list[Resource] = []
        self._count = 0
        self._routes: dict[str, Route] = {}
        #: What `rows_of` has said, while there are so many handlers and listeners.
        self._rows_of: dict[tuple[str, str], OfKind] = {}
        self._counts = (0, 0)
        self._found: dict[tuple[str, str], tuple[Route, ...]] = {}
        self._listeners: dict[tuple[str, str], tuple[object, tuple[Route, ...]]] = {}
        self._hints: dict[tuple[str, str], str] = {}
        #: How a transactional handler is called. Nobody registers one where there is no way.
        self.effects_of: Callable[[AnyHandler], Effects] | None = None

    def __bool__(self) -> bool:
        """Whether anybody could receive anything. A registry that cannot be counted is taken to have some."""
        return bool(self.roster.handlers or self._listeners) or self.count() != 0

    def count(self) -> int | None:
        """How many could receive something; None where a registry cannot be counted."""
        try:
            return len(self.roster.handlers) + len(self._registry)  # type: ignore[arg-type]
        except TypeError:
            return None

    def routes_of(self, event: EventEnvelope) -> Sequence[Route]:
        """All that match, in the order in which they run. Raises what a registry or a predicate raises."""
        kind = (event.aggregate_type, event.event_type)
        known = self._listeners.get(kind)
        if known is not None and self._answers_stay:
            listening = known[1]
        else:
            found = self._registry.listener_for(*kind)
            listening = () if found is None else self._listening(kind, found)
        return (*listening, *self._matching(event)) if self.roster.handlers else listening

    def routes_of_row(self, event: EventEnvelope, handler_id: str) -> Sequence[Route]:
        """Who receives a row: the handler that it was written for, or all that match now. Raises UnroutableEvent when
        nobody here does."""
        if not handler_id and self._answers_stay and not self.roster.handlers:  # what routes_of() would say, sooner
            known = self._listeners.get((event.aggregate_type, event.event_type))
            if known is not None:
                return known[1]
        if handler_id:
            route = self.route(handler_id, event)
            routes: Sequence[Route] = () if route is None else (route,)
        else:
            routes = self.routes_of(event)
        if not routes:
            raise self.unknown(event, handler_id)
        return routes

    def handlers_for(self, kind: type) -> list[str]:
        """The ids of those that take objects of this class, and do not merely take everything."""
        return [handler.id for handler in self._search(GLOBAL, event_type_of(kind)) if not handler.is_generic]

    def is_routable(self, event: EventEnvelope) -> bool:
        """Whether anybody here receives it; a registry that fails says what is wrong when the event is delivered."""
        try:
            return len(self.routes_of(event)) > 0
        except Exception:
            return False

    def knows(self, handler_id: str, aggregate_type: str, event_type: str) -> bool:
        """Whether anybody here receives such rows, as far as names tell: `supports=` sees events."""
        if handler_id and handler_id != LISTENER_ID:
            return self.roster.named(handler_id) is not None
        found = self._registry.listener_for(aggregate_type, event_type)
        if found is not None and not (isinstance(found, Sequence) and not found):
            return True
        return not handler_id and bool(self._search(aggregate_type, event_type))

    def nearest(self, handler_id: str, aggregate_type: str, event_type: str) -> str | None:
        """The name that was probably meant by one that nobody here has."""
        if handler_id and handler_id != LISTENER_ID:
            return closest(handler_id, self.roster.names())
        return closest(route_name(aggregate_type, event_type), self._route_names())

    def route(self, handler_id: str, event: EventEnvelope) -> Route | None:
        """The route that a row was written for."""
        if handler_id == LISTENER_ID:
            kind = (event.aggregate_type, event.event_type)
            found = self._registry.listener_for(*kind)
            return next(iter(self._listening(kind, found)), None) if found is not None else None
        handler = self.roster.named(handler_id)
        return None if handler is None else self._route(handler)

    def rows_of(self, event: EventEnvelope) -> Sequence[str]:
        """The handler ids of the rows to write: one for each when there are several, else one row for all; nothing when
        nobody here receives the event."""
        if not self._answers_stay:
            return _rows(self.routes_of(event))
        handlers = self.roster.handlers
        counts = (len(handlers), len(self._registered))
        if counts != self._counts:
            self._rows_of, self._counts = {}, counts
        # One and the same dictionary, as below.
        known, kind = self._rows_of, (event.aggregate_type, event.event_type)
        rows: Sequence[str] | None = known.get(kind)
        if rows is None:
            rows = _rows(self.routes_of(event))
            # What nobody receives may be received once a class is known, or be that of a predicate.
            if counts == (0, 0) or (rows and all(each.settings.supports is None for each in tuple(handlers.values()))):
                rows = OfKind(rows)
                _keep(known, kind, rows)
        return rows

    def fallback_of(self, route: Route, event: EventEnvelope) -> Fallback | None:
        """The handler's own, else the one for the type of the payload, or for generic handlers."""
        handler: AnyHandler | None = route.handler
        if handler is None or handler.bound_fallback is not None:
            return None if handler is None else handler.bound_fallback
        for each in self.roster.fallbacks:
            if isinstance(each.payload, AnyEvent):
                if handler.is_generic:
                    return each
            elif handler.is_typed and self.payloads.matches(each.payload, event.event_type):
                return each
        return None

    def unknown(self, event: EventEnvelope, handler_id: str) -> UnroutableEvent:
        """What is wrong with a row that nobody here receives."""
        name = route_name(event.aggregate_type, event.event_type)
        hint = self._hints.get((handler_id, name))
        if hint is None:  # sought once: such a row comes again every second
            near = self.nearest(handler_id, event.aggregate_type, event.event_type)
            hint = f"; the closest is {near!r}" if near else ""
            _keep(self._hints, (handler_id, name), hint)
        if not handler_id:
            return UnroutableEvent(
                f"no listener or handler takes {name} ({event.event_id}){hint}",
                fix=f"register one where events are delivered, then replay the event; {_LONGER}",
            )
        return UnroutableEvent(
            f"no handler is called {handler_id!r}, for which {event.event_type} {event.event_id} was written{hint}",
            fix=f'if it was renamed: aliases=["{handler_id}"]; {_LONGER}',
        )

    def _route_names(self) -> set[str]:
        """What this process takes, as far as it goes by names."""
        names: set[str] = set()
        if isinstance(self._registry, DefaultListenerRegistry | MultiListenerRegistry):
            names.update(self._registry.route_names())
        for handler in tuple(self.roster.handlers.values()):
            if handler.event_type is not None:
                names.add(route_name(handler.settings.aggregate_type or GLOBAL, handler.event_type))
            elif handler.is_typed:
                names |= self.payloads.names_for(handler.route_type)
        return names

    def current(self, names: Sequence[str]) -> tuple[str, ...]:
        """Stored ids as they are now: an alias stands for the handler that has it."""
        return tuple(map(self._current, names))

    def _current(self, name: str) -> str:
        plain = name.removeprefix(GAVE_UP)
        handler = self.roster.named(plain)
        return name if handler is None else name.removesuffix(plain) + handler.id

    def _listening(self, kind: tuple[str, str], found: Listener | Sequence[Listener]) -> tuple[Route, ...]:
        """The route to what a registry has found; none to an empty sequence."""
        known = self._listeners.get(kind)
        if known is not None and known[0] is found:
            return known[1]
        listeners = tuple(map(called, found if isinstance(found, Sequence) else (found,)))
        if not listeners:
            return ()
        # All that is registered has one id, and several destinations.
        route = Route(LISTENER_ID, f"{LISTENER_ID} {route_name(*kind)}", listeners)
        _keep(self._listeners, kind, (found, (route,)))
        return (route,)

    def _matching(self, event: EventEnvelope) -> Sequence[Route]:
        if self._count != len(self.roster):
            self._found, self._count = {}, len(self.roster)
        # One and the same dictionary: what is found while a handler is added must not outlive the addition.
        kind, known = (event.aggregate_type, event.event_type), self._found
        found = known.get(kind)
        if found is None:
            found = tuple(map(self._route, self._search(*kind)))
            if found:  # a class that will match may not be known yet
                _keep(known, kind, found)
        if any(route.supports is not None for route in found):
            return [route for route in found if route.supports is None or route.supports(event)]
        return found

    def _search(self, aggregate_type: str, event_type: str) -> list[AnyHandler]:
        handlers = [
            handler
            for handler in tuple(self.roster.handlers.values())
            if handler.settings.aggregate_type in (None, aggregate_type) and self._takes(handler, event_type)
        ]
        return sorted(handlers, key=lambda handler: handler.is_generic)  # stable: in order of registration

    def _takes(self, handler: AnyHandler, event_type: str) -> bool:
        if handler.is_generic or handler.event_type == event_type:
            return True
        return handler.is_typed and self.payloads.matches(handler.route_type, event_type)

    def _route(self, handler: AnyHandler) -> Route:
        route = self._routes.get(handler.id)
        if route is None:
            effects = None
            if handler.settings.transactional and self.effects_of is not None:
                effects = self.effects_of(handler)
            route = self._routes.setdefault(handler.id, Route.to(handler, effects))
        return route


def _rows(routes: Sequence[Route]) -> Sequence[str]:
    return [route.id for route in routes] if len(routes) > 1 else _FOR_ALL[: len(routes)]


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Remember what was found, but not for ever more: somebody may make up names of events."""
    if len(known) >= _KEPT_AT_MOST:
        known.clear()
    known[key] = value
