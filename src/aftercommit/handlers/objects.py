"""Handlers that are objects: classes to derive from, beside the decorators. Their attributes are the options."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any, Final, ForwardRef, Generic, TypeVar, get_args, get_origin, get_type_hints

from aftercommit.errors import InvalidHandler
from aftercommit.events.annotations import classes, is_plain_data
from aftercommit.events.context import EventMetadata
from aftercommit.events.durations import Duration
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import described
from aftercommit.events.retry_settings import Retry
from aftercommit.handlers.handler import AnyHandler, Fallback, Handler, covers
from aftercommit.handlers.options import OPTIONS, any_event, any_payload
from aftercommit.handlers.signatures import UNTYPED, Scope, element_of, where

T = TypeVar("T")


class HandlerObject:
    """What handlers that are objects share: the options of `handler()` as attributes, of the class or of the object."""

    #: The stored name; the name of the class when it is left out.
    id: str | None = None
    aliases: Iterable[str] = ()
    aggregate_type: str | Enum | None = None
    retry: Retry | None = None
    timeout: Duration | None = None
    concurrency: int | None = None
    rate: str | None = None
    destination: str | Callable[[EventEnvelope], str] | None = None
    batch: int | None = None
    linger: Duration | None = None
    transactional: bool = False


class OutboxTypedHandler(HandlerObject, ABC, Generic[T]):
    """Handles the events of one payload class: that of its type argument, of its subclasses, or of each of a union.
    With `batch = 100` its type argument is what it gets, `list[OrderPlaced]`.

    >>> from dataclasses import dataclass
    >>> from aftercommit import HandlerSet
    >>> @dataclass
    ... class OrderPlaced:
    ...     order_id: int
    >>> class SendReceipt(OutboxTypedHandler[OrderPlaced]):
    ...     retry = "fixed"
    ...
    ...     def handle(self, payload: OrderPlaced) -> None:
    ...         print(f"receipt for {payload.order_id}")
    >>> HandlerSet().handler(SendReceipt()).id
    'SendReceipt'
    """

    # Written so that type checkers look at the payload alone: metadata may follow or not.
    @abstractmethod
    def handle(self, payload: T, /, *rest: Any, **nothing: Any) -> object:
        """`handle(payload)` or `handle(payload, metadata)`, sync or async."""


class OutboxHandler(HandlerObject, ABC):
    """Handles every event, after the typed handlers.

    The payload is an object of the class that a handler of the outbox, or the annotation here
    (`payload: OrderPlaced | OrderPaid | object`), names for the event; else it is plain data, or bytes as they are.
    """

    @abstractmethod
    def handle(self, payload: Any, metadata: EventMetadata, /) -> object:
        """Sync or async."""

    def supports(self, event: EventEnvelope) -> bool:
        """Whether it wants this event."""
        return True


class OutboxFallbackHandler(ABC, Generic[T]):
    """Takes over what failed for good, for all typed handlers of this payload class that have no fallback of their own;
    `OutboxFallbackHandler[Any]` does so for the generic handlers."""

    @abstractmethod
    def handle(self, payload: T, /, *rest: Any, **nothing: Any) -> object:
        """`handle(payload, failure)` or `handle(payload, metadata, failure)`, sync or async."""


#: Whose objects are handlers or fallbacks by themselves.
KINDS: Final = (OutboxTypedHandler, OutboxHandler, OutboxFallbackHandler)

_OPTIONS: Final = tuple(name for name in OPTIONS if name != "supports")


def refuse_class(given: object) -> None:
    """A class of handlers is easily taken for a route, and nobody would ever be called."""
    if isinstance(given, type) and issubclass(given, KINDS):
        raise InvalidHandler(
            f"got the class {given.__name__}, and only an object of it handles events", fix=f"pass {given.__name__}(…)"
        )


def handler_of(instance: Any, route: object, keywords: dict[str, Any], names: Mapping[str, Any]) -> AnyHandler:
    """The handler that an object is. Its attributes are its options, where no keyword says otherwise."""
    _refuse_two_roles(instance)
    if isinstance(instance, OutboxFallbackHandler):
        raise InvalidHandler(
            f"{type(instance).__name__} is a fallback", fix="outbox.fallback(…) or outbox.include(…) takes it"
        )
    if route is not None:
        raise InvalidHandler(
            f"handler({described(route)}) was put on {type(instance).__name__}, whose class says what it handles",
            fix=f"outbox.handler({type(instance).__name__}(…))",
        )
    options = {"id": type(instance).__name__, **_options_of(instance), **keywords}
    if isinstance(instance, OutboxHandler):
        return Handler(instance.handle, any_payload, options, Scope(names))
    kind = _argument(instance, OutboxTypedHandler, names)
    if options.get("batch") is not None and (kind := element_of(said := kind)) is None:
        raise InvalidHandler(
            f"{type(instance).__name__} gets batches, and handles {said!r}, which is no list",
            fix=f"OutboxTypedHandler[list[{getattr(said, '__name__', 'OrderPlaced')}]]",
        )
    if kind is EventEnvelope or (kind is not UNTYPED and any(map(is_plain_data, classes(kind)))):
        raise InvalidHandler(
            f"{type(instance).__name__} handles {kind!r}, which names no event type",
            fix="name a class of payloads: OutboxTypedHandler[OrderPlaced]; OutboxHandler takes all events",
        )
    return Handler(instance.handle, None if kind is UNTYPED else kind, options, Scope({**names, **_named(kind)}))


def fallback_of(instance: OutboxFallbackHandler[Any], names: Mapping[str, Any]) -> Fallback:
    """The fallback that an object is."""
    _refuse_two_roles(instance)
    kind = _argument(instance, OutboxFallbackHandler, names)
    fallback = Fallback(instance.handle, {**names, **_named(kind)})
    if kind is UNTYPED:
        kind = fallback.payload
    elif kind in (Any, object):
        kind = any_event
    elif not covers(fallback.payload, kind):
        raise InvalidHandler(
            f"the fallback {where(instance.handle)} takes another payload than its class says, {kind!r}",
            fix="annotate its first parameter as the type argument, or leave the annotation out",
        )
    if kind is UNTYPED:
        raise InvalidHandler(
            f"the fallback {type(instance).__name__} says of no payload that it is for it",
            fix="OutboxFallbackHandler[OrderPlaced], or OutboxFallbackHandler[Any] for generic handlers",
        )
    fallback.payload = kind
    return fallback


def _refuse_two_roles(instance: object) -> None:
    roles = [kind.__name__ for kind in KINDS if isinstance(instance, kind)]
    if len(roles) > 1:
        raise InvalidHandler(
            f"{type(instance).__name__} is {' and '.join(roles)}, and has one method handle()",
            fix="write a class for each",
        )


def _options_of(instance: HandlerObject) -> dict[str, Any]:
    options = {name: value for name in _OPTIONS if (value := getattr(instance, name)) is not None}
    supports = getattr(instance, "supports", None)
    if getattr(supports, "__func__", None) is not OutboxHandler.supports and supports is not None:
        options["supports"] = supports
    return options


def _argument(instance: object, base: type, names: Mapping[str, Any]) -> Any:
    """What the class says for T, or, as in `Relay[OrderPlaced]()`, the object; UNTYPED when neither does."""
    found = _argument_of(getattr(instance, "__orig_class__", type(instance)), base, names)
    return UNTYPED if getattr(found, "__parameters__", ()) or isinstance(found, TypeVar) else found


def _argument_of(kind: Any, base: type, names: Mapping[str, Any]) -> Any:
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is base:
        return arguments[0] if arguments else UNTYPED
    # Of the class itself: as an attribute it is inherited.
    for parent in vars(origin).get("__orig_bases__", origin.__bases__):
        if issubclass(get_origin(parent) or parent, base):
            found = _resolved(_argument_of(parent, base, names), origin, names)
            given = dict(zip(origin.__parameters__, arguments, strict=False)) if arguments else {}
            if isinstance(found, TypeVar):
                return given.get(found, found)
            parameters = getattr(found, "__parameters__", ())
            return found[tuple(given.get(each, each) for each in parameters)] if parameters and given else found
    return UNTYPED


def _resolved(found: Any, kind: type, names: Mapping[str, Any]) -> Any:
    """A name in quotation marks is that of the module of its class, or of where it is registered."""
    if not isinstance(found, ForwardRef):
        return found
    holder = SimpleNamespace(__annotations__={"it": found})
    try:
        return get_type_hints(holder, vars(sys.modules[kind.__module__]), dict(names))["it"]
    except Exception as error:
        raise InvalidHandler(
            f"the type argument {found.__forward_arg__!r} of {kind.__name__} cannot be resolved: {error}",
            fix="import or define the class before the handler, and name it without quotation marks",
        ) from error


def _named(kind: Any) -> dict[str, type]:
    """For annotations in quotation marks: what the type argument names need not be found again."""
    return {each.__name__: each for each in classes(kind) if isinstance(each, type)}
