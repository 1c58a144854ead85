"""A declared handler: the function it was, with its route, its options and its fallback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from msgspec.structs import replace

from aftercommit.errors import DuplicateHandler, InvalidHandler
from aftercommit.events.annotations import classes, is_plain_data
from aftercommit.events.context import EventMetadata, FailureContext
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import described, name_of
from aftercommit.handlers.options import AnyEvent, AnyPayload, HandlerSettings, settings_of
from aftercommit.handlers.signatures import (
    UNTYPED,
    Scope,
    Signature,
    batch_signature,
    fallback_signature,
    handler_signature,
    refuse_uncallable,
    where,
)

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")
Fallen = TypeVar("Fallen", bound=Callable[..., object])


class Fallback:
    """A function for events that failed for good."""

    def __init__(self, function: Callable[..., object], names: Mapping[str, Any]) -> None:
        refuse_uncallable(function, "fallback")
        signature = fallback_signature(function, names)
        self.function = function
        self.takes_metadata = signature.takes_metadata
        self.payload = signature.annotation

    @property
    def payload_types(self) -> list[Any]:
        """Whose names and formats an outbox has to know for it."""
        return [] if isinstance(self.payload, AnyEvent) else [self.payload]


class Handler(Generic[T, P, R]):
    """What `@outbox.handler` gives: it is called as the function it was.

    >>> from aftercommit import HandlerSet
    >>> handlers = HandlerSet()
    >>> @handlers.handler("OrderPlaced")
    ... def double(event):
    ...     return 2 * event
    >>> double(21), double.id
    (42, 'double')
    """

    def __init__(self, function: Callable[P, R], route: object, options: dict[str, Any], scope: Scope) -> None:
        refuse_uncallable(getattr(function, "__func__", function) if scope.is_class_body else function)
        update_wrapper(self, function, updated=())  # its name and its words, not its attributes
        self.function = function
        self.route = route
        self.settings: HandlerSettings = settings_of(function, options, is_generic=isinstance(route, AnyEvent))
        #: HandlerSettings in the body of a class: it waits for an instance, which `include` brings.
        self.is_method = scope.is_class_body
        self.is_included = not self.is_method
        self.bound_fallback: Fallback | None = None
        self._names = scope.names
        self._unbound_fallback: Callable[..., object] | None = None
        if not self.is_method:
            self._read(self._signature(function))

    def _signature(self, function: Callable[..., object]) -> Signature:
        if self.settings.batch is not None:
            return batch_signature(function, self._names)
        return handler_signature(function, self._names, is_transactional=self.settings.transactional)

    def _read(self, signature: Signature) -> None:
        self.takes_metadata, self.tx = signature.takes_metadata, signature.tx
        #: The stored name of its events, or None: then `payload` is the route, or every event is.
        self.event_type = name_of(self.route, "event_type", 128) if isinstance(self.route, str | Enum) else None
        self.payload = _payload_type(self.function, self.route, signature.annotation)
        #: For a typed handler the class, or the classes, whose events it takes.
        self.route_type = self.route if _is_type(self.route) else self.payload
        #: Of a handler of any payload: the classes that it names beside all others.
        self.mentioned = _mentioned(signature.annotation) if isinstance(self.route, AnyPayload) else []

    @property
    def id(self) -> str:
        return self.settings.id

    @property
    def payload_types(self) -> list[Any]:
        """Whose names and formats an outbox has to know for it: its route, and what its payload is decoded as."""
        decodes = self.payload is not EventEnvelope and not is_plain_data(self.payload)
        return [*([self.route_type] if self.is_typed else []), *([self.payload] if decodes else []), *self.mentioned]

    @property
    def is_generic(self) -> bool:
        return isinstance(self.route, AnyEvent)

    @property
    def is_typed(self) -> bool:
        """Whether its route is the type of its payload."""
        return self.event_type is None and not self.is_generic

    @overload
    def fallback(self, function: Callable[[T, FailureContext], Any], /) -> Callable[[T, FailureContext], Any]: ...
    @overload
    def fallback(
        self, function: Callable[[T, EventMetadata, FailureContext], Any], /
    ) -> Callable[[T, EventMetadata, FailureContext], Any]: ...
    @overload
    def fallback(self, function: Callable[[S, T, FailureContext], Any], /) -> Callable[[S, T, FailureContext], Any]: ...
    @overload
    def fallback(
        self, function: Callable[[S, T, EventMetadata, FailureContext], Any], /
    ) -> Callable[[S, T, EventMetadata, FailureContext], Any]: ...
    def fallback(self, function: Any, /) -> Any:
        """Called once, when the handler's attempts are used up or its error is not worth another.

        It gets what the handler gets, then the FailureContext. When it returns, the event is DONE. That of a handler of
        batches gets one event at a time.
        """
        if self.bound_fallback is not None or self._unbound_fallback is not None:
            raise DuplicateHandler(f"the handler {self.id} has a fallback already", fix="call both from one function")
        if self.is_method:
            refuse_uncallable(function, "fallback")
            self._unbound_fallback = function
        else:
            self.bound_fallback = self._checked_fallback(function, Scope.of_caller(1).names)
        return function

    def _checked_fallback(self, function: Callable[..., object], names: Mapping[str, Any]) -> Fallback:
        fallback = Fallback(function, names)
        if fallback.payload not in (UNTYPED, self.payload):
            raise InvalidHandler(
                f"the fallback {where(function)} takes another event than its handler {self.id}",
                fix="annotate its first parameter as the handler's, or leave the annotation out",
            )
        return fallback

    def bind(self, instance: object, name: str) -> Handler[Any, ..., Any]:
        """The handler that this declaration makes of a method of an instance."""
        bound: Handler[Any, ..., Any] = object.__new__(Handler)
        bound.function = getattr(instance, name)
        bound.route, bound.settings, bound._names = self.route, self.settings, self._names
        bound.is_method, bound.is_included, bound.bound_fallback, bound._unbound_fallback = False, True, None, None
        signature = bound._signature(bound.function)
        is_overridden = getattr(bound.function, "__func__", None) is not self.function
        if signature.annotation is UNTYPED and self.route is None and is_overridden:
            # The body is a subclass's, which need not say again what the declaration has said.
            declared_for = bound._signature(_bound(self.function, instance))
            signature = replace(signature, annotation=declared_for.annotation)
        bound._read(signature)
        if self._unbound_fallback is not None:
            method = _bound(self._unbound_fallback, instance)
            bound.bound_fallback = bound._checked_fallback(method, self._names)
        self.is_included = True
        return bound

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> R:
        return self.function(*arguments, **keywords)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A method stays a method."""
        return self if instance is None else _bound(self.function, instance)

    def __repr__(self) -> str:
        return f"<handler {self.id}>"


def _bound(function: Any, instance: object) -> Callable[..., object]:
    """A method of the instance; an object that is merely called stays what it is."""
    bound: Callable[..., object] = function
    if hasattr(function, "__get__"):
        bound = function.__get__(instance, type(instance))
    return bound


def _is_type(route: object) -> bool:
    """Whether a route is a class, or a union of some, and no name."""
    return route is not None and not isinstance(route, str | Enum | AnyEvent)


def _payload_type(function: object, route: object, annotation: Any) -> Any:
    """What the payload is decoded as; EventEnvelope for the event itself, `object` for whatever it is."""
    if isinstance(route, AnyPayload):
        return _any_payload(function, annotation)
    if _is_type(route):
        if annotation is EventEnvelope:
            return EventEnvelope
        if covers(annotation, route):
            return route
        raise InvalidHandler(
            f"the handler {where(function)} has the route {described(route)} and takes {annotation!r}",
            fix="annotate its first parameter as the route, or leave out one of the two",
        )
    if route is not None:
        return EventEnvelope if annotation is UNTYPED else annotation
    if annotation is UNTYPED:
        raise InvalidHandler(
            f"the handler {where(function)} has no annotation on its first parameter, so no event is routed to it",
            fix='def handler(event: OrderPlaced), or name the route: @outbox.handler("OrderPlaced")',
        )
    if annotation is EventEnvelope or is_plain_data(annotation):
        raise InvalidHandler(
            f"the handler {where(function)} takes {annotation!r}, which names no event type",
            fix='name the route: @outbox.handler("OrderPlaced"), or @outbox.handler(any_event) for all events',
        )
    return annotation


def _any_payload(function: object, annotation: Any) -> Any:
    if annotation is EventEnvelope:
        return EventEnvelope
    if annotation is UNTYPED or any(map(is_plain_data, classes(annotation))):
        return annotation if annotation is not UNTYPED and is_plain_data(annotation) else object
    raise InvalidHandler(
        f"the handler {where(function)} gets every event, and takes {annotation!r} only",
        fix="take others too: payload: OrderPlaced | object; or use OutboxTypedHandler[OrderPlaced]",
    )


def _mentioned(annotation: Any) -> list[Any]:
    if annotation in (UNTYPED, EventEnvelope):
        return []
    return [kind for kind in classes(annotation) if not is_plain_data(kind)]


def covers(annotation: Any, kind: Any) -> bool:
    """Whether what is annotated takes every object of a class, or of each class of a union."""
    if annotation is UNTYPED or annotation == kind:
        return True
    takes = list(classes(annotation))
    return all(any(each == other or _is_subclass(each, other) for other in takes) for each in classes(kind))


def _is_subclass(kind: Any, parent: Any) -> bool:
    try:
        return issubclass(kind, parent)
    except TypeError:  # TypedDicts and generic aliases
        return False


AnyHandler: TypeAlias = Handler[Any, ..., Any]
