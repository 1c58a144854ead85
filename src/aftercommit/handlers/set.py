"""Handlers declared together: in a module without a global outbox, in a class, or on an outbox itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from aftercommit.errors import DuplicateHandler, InvalidHandler
from aftercommit.events.context import EventMetadata, FailureContext
from aftercommit.handlers.declaring import (
    Declares,
    DeclaresAny,
    DeclaresAnyBatch,
    DeclaresAnyTransactional,
    DeclaresBatch,
    DeclaresTransactional,
)
from aftercommit.handlers.handler import AnyHandler, Fallback, Fallen, Handler
from aftercommit.handlers.objects import (
    KINDS,
    OutboxFallbackHandler,
    OutboxHandler,
    OutboxTypedHandler,
    fallback_of,
    handler_of,
    refuse_class,
)
from aftercommit.handlers.options import AnyEvent, BatchOptions, HandlerOptions, PlainOptions
from aftercommit.handlers.signatures import UNTYPED, Scope, where

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


class Roster:
    """The handlers of one set: by id and alias, in order of registration, with the fallbacks for payload types. Every
    id, alias and payload type has one owner."""

    def __init__(self) -> None:
        self.handlers: dict[str, AnyHandler] = {}
        self.fallbacks: list[Fallback] = []
        #: Whether any of them takes events in batches.
        self.has_batches = False
        self._names: dict[str, AnyHandler] = {}

    def __len__(self) -> int:
        return len(self.handlers)

    def named(self, name: str) -> AnyHandler | None:
        """The handler with this id or alias."""
        return self._names.get(name)

    def names(self) -> Sequence[str]:
        return tuple(self._names)

    def check(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        """Refuse what cannot be added, before anything is."""
        names = dict(self._names)
        for handler in handlers:
            for name in _names(handler):
                known = names.setdefault(name, handler)
                if known is not handler:
                    raise DuplicateHandler(
                        f"two handlers are called {name!r}: {where(known.function)} and {where(handler.function)}; "
                        "rows are stored under that name",
                        fix=f'give one of them another: @outbox.handler(…, id="{name}-2")',
                    )
        payloads = [known.payload for known in self.fallbacks]
        for fallback in fallbacks:
            if fallback.payload in payloads:
                raise DuplicateHandler(
                    f"{fallback.payload!r} has a fallback already; {where(fallback.function)} would be a second one",
                    fix="bind it to its handler: @handler.fallback",
                )
            payloads.append(fallback.payload)

    def add(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        """What `check` has let pass."""
        for handler in handlers:
            self._names.update(dict.fromkeys(_names(handler), handler))
            self.handlers[handler.id] = handler
            self.has_batches = self.has_batches or handler.settings.batch is not None
        self.fallbacks.extend(fallbacks)


class HandlerSet:
    """Handlers and fallbacks that an outbox takes over with `outbox.include(handlers)`."""

    def __init__(self) -> None:
        self._roster = Roster()
        self._methods: list[AnyHandler] = []
        self._instances: list[object] = []
        self._followers: list[HandlerSet] = []
        self._included: list[HandlerSet] = []

    # ------------------------------------------------------------ declaring

    @overload
    def handler(self, route: type[T], /, **options: Unpack[BatchOptions]) -> DeclaresBatch[T]: ...
    @overload
    def handler(
        self, route: str | Enum | AnyEvent | None = None, /, **options: Unpack[BatchOptions]
    ) -> DeclaresAnyBatch: ...
    @overload
    def handler(
        self, handler: OutboxTypedHandler[list[T]], /, **options: Unpack[BatchOptions]
    ) -> Handler[T, ..., object]: ...
    @overload
    def handler(  # type: ignore[overload-overlap]
        self, route: type[T], /, *, transactional: Literal[True], **options: Unpack[PlainOptions]
    ) -> DeclaresTransactional[T]: ...
    @overload
    def handler(  # type: ignore[overload-overlap]
        self,
        route: str | Enum | AnyEvent | None = None,
        /,
        *,
        transactional: Literal[True],
        **options: Unpack[PlainOptions],
    ) -> DeclaresAnyTransactional: ...
    @overload
    def handler(self, route: type[T], /, **options: Unpack[HandlerOptions]) -> Declares[T]: ...  # type: ignore[overload-overlap]
    @overload
    def handler(
        self, route: str | Enum | AnyEvent | None = None, /, **options: Unpack[HandlerOptions]
    ) -> DeclaresAny: ...
    @overload
    def handler(
        self, handler: OutboxTypedHandler[T], /, **options: Unpack[HandlerOptions]
    ) -> Handler[T, ..., object]: ...
    @overload
    def handler(self, handler: OutboxHandler, /, **options: Unpack[HandlerOptions]) -> AnyHandler: ...
    @overload
    def handler(self, function: Callable[[T], R], /) -> Handler[T, [T], R]: ...
    @overload
    def handler(self, function: Callable[[T, EventMetadata], R], /) -> Handler[T, [T, EventMetadata], R]: ...
    @overload
    def handler(self, function: Callable[[S, T], R], /) -> Handler[T, [S, T], R]: ...
    @overload
    def handler(self, function: Callable[[S, T, EventMetadata], R], /) -> Handler[T, [S, T, EventMetadata], R]: ...
    def handler(self, route: Any = None, /, **options: Any) -> Any:
        """Declare a function as a handler. Its first parameter's type is the route; or name one.

        The route may be a class, the name of an event type (a string or an Enum member), or `any_event`. An object of a
        subclass of OutboxTypedHandler or OutboxHandler is taken as it is. Options: aggregate_type, retry, timeout,
        concurrency, rate, id, aliases, supports, destination, batch, linger, transactional.

        With `batch=100` it gets lists of up to so many events of its route, `def h(events: list[OrderPlaced])`: what
        waits at that moment, or comes until `linger="5ms"` is over. What it returns or raises is said of all; a
        BatchResult says it of each.
        """
        refuse_class(route)
        is_route = route is None or isinstance(route, str | Enum | AnyEvent | type)
        if not is_route:
            return self._declare(route, None, options, Scope.of_caller(1))

        def declare(function: Any) -> Any:
            return self._declare(function, route, options, Scope.of_caller(1))

        return declare

    def _declare(self, function: Any, route: Any, options: dict[str, Any], scope: Scope) -> AnyHandler:
        if isinstance(function, KINDS):
            handler = handler_of(function, route, options, scope.names)
        else:
            handler = Handler(function, route, options, scope)
        if handler.is_method:
            self._methods.append(handler)
        else:
            self._take([handler], [])
        return handler

    @overload
    def fallback(self, route: type[T] | AnyEvent, /) -> Callable[[Fallen], Fallen]: ...  # type: ignore[overload-overlap]
    @overload
    def fallback(self, fallback: OutboxFallbackHandler[T], /) -> OutboxFallbackHandler[T]: ...
    @overload
    def fallback(self, function: Callable[[T, FailureContext], R], /) -> Callable[[T, FailureContext], R]: ...
    @overload
    def fallback(
        self, function: Callable[[T, EventMetadata, FailureContext], R], /
    ) -> Callable[[T, EventMetadata, FailureContext], R]: ...
    def fallback(self, route_or_function: Any, /) -> Any:
        """A fallback for all handlers of a payload type, or for all generic ones, that have none of their own."""
        refuse_class(route_or_function)
        if isinstance(route_or_function, type | AnyEvent):

            def declare(function: Any) -> Any:
                return self._add_fallback(function, route_or_function, Scope.of_caller(1))

            return declare
        return self._add_fallback(route_or_function, UNTYPED, Scope.of_caller(1))

    def _add_fallback(self, function: Any, route: Any, scope: Scope) -> Any:
        if isinstance(function, OutboxFallbackHandler):
            self._take([], [fallback_of(function, scope.names)])
            return function
        fallback = Fallback(function, scope.names)
        if route is not UNTYPED:
            fallback.payload = route
        if fallback.payload is UNTYPED:
            raise InvalidHandler(
                f"the fallback {where(function)} has no annotation on its first parameter",
                fix="def order_failed(event: OrderPlaced, failure: FailureContext), or @handler.fallback",
            )
        self._take([], [fallback])
        return function

    def include(self, other: object) -> Self:
        """Take over the handlers of a HandlerSet, also those that it gets later, or what an instance handles: by its
        declared methods, or because it is a handler or a fallback itself."""
        if isinstance(other, HandlerSet):
            if self not in other._followers:
                self._take(other._roster.handlers.values(), other._roster.fallbacks)
                other._followers.append(self)
                self._included.append(other)
        elif not any(known is other for known in self._instances):
            self._take(*_parts_of(other, Scope.of_caller(1).names))
            self._instances.append(other)
        return self

    # ------------------------------------------------------------ keeping

    def _take(self, handlers: Iterable[AnyHandler], fallbacks: Iterable[Fallback]) -> None:
        """Add all or none, here and wherever this set is included."""
        everybody = _reached(self, lambda each: each._followers)
        news = [each._new(handlers, fallbacks) for each in everybody]
        for each, new in zip(everybody, news, strict=True):
            each._check(*new)
        for each, new in zip(everybody, news, strict=True):
            each._add(*new)

    def _new(
        self, handlers: Iterable[AnyHandler], fallbacks: Iterable[Fallback]
    ) -> tuple[list[AnyHandler], list[Fallback]]:
        """Without what came on another way before."""
        known = self._roster
        return (
            [each for each in handlers if known.handlers.get(each.id) is not each],
            [each for each in fallbacks if each not in known.fallbacks],
        )

    def _check(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        self._roster.check(handlers, fallbacks)

    def _add(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        self._roster.add(handlers, fallbacks)

    def _not_included(self) -> list[AnyHandler]:
        """Methods that are declared here and wait for an instance of their class."""
        sources = _reached(self, lambda each: each._included)
        return [method for source in sources for method in source._methods if not method.is_included]


def _reached(start: HandlerSet, further: Callable[[HandlerSet], Iterable[HandlerSet]]) -> list[HandlerSet]:
    """A set and all that are reached from it; each once, for they may include each other."""
    found: list[HandlerSet] = []
    waiting = [start]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.append(each)
            waiting.extend(further(each))
    return found


def _parts_of(instance: object, names: Mapping[str, Any]) -> tuple[list[AnyHandler], list[Fallback]]:
    """The handlers and fallbacks that an instance is or has."""
    handlers, fallbacks = _methods_of(instance), []
    if isinstance(instance, KINDS) and any(each.function == instance.handle for each in handlers):
        raise InvalidHandler(
            f"{type(instance).__name__}.handle is declared as a handler, and is one by its class",
            fix="leave out the decorator; its options are attributes of the class",
        )
    if isinstance(instance, OutboxFallbackHandler):
        fallbacks.append(fallback_of(instance, names))
    elif isinstance(instance, KINDS):
        handlers.append(handler_of(instance, None, {}, names))
    if not handlers and not fallbacks:
        raise InvalidHandler(
            f"include() got {instance!r}, which is no handler and has no method that is declared as one",
            fix="pass a HandlerSet, an object of a subclass of OutboxTypedHandler, OutboxHandler or "
            "OutboxFallbackHandler, or one of a class with @handlers.handler on its methods",
        )
    return handlers, fallbacks


def _methods_of(instance: object) -> list[AnyHandler]:
    """The declared methods of an instance, bound. A subclass may write its own body under a declared name."""
    if isinstance(instance, type):
        raise InvalidHandler(
            f"include() got the class {instance.__name__}, and its methods need an instance",
            fix=f"outbox.include({instance.__name__}(…))",
        )
    found: dict[str, AnyHandler] = {}
    for kind in reversed(type(instance).__mro__):
        for name, value in vars(kind).items():
            declared = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if isinstance(declared, Handler):
                found[name] = declared
    return [handler.bind(instance, name) for name, handler in found.items()]


def _names(handler: AnyHandler) -> tuple[str, ...]:
    return handler.id, *handler.settings.aliases
