"""What a user's function wants: the type of its event, and whether it takes metadata too. Read once, when declared."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import FrameType, SimpleNamespace
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from aftercommit.errors import InvalidHandler, OutboxError
from aftercommit.events.context import EventMetadata, FailureContext
from aftercommit.events.names import described
from aftercommit.handlers.transactional import TxParameter, kind_of_tx

#: The first parameter has no annotation. Not None, which is one.
UNTYPED: Final[Any] = type("Untyped", (), {"__repr__": lambda _: "no annotation"})()

_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Signature(msgspec.Struct, frozen=True):
    """The annotation of the event, whether EventMetadata comes with it, and where a transactional handler wants its
    transaction."""

    annotation: Any
    takes_metadata: bool
    tx: TxParameter | None = None


def handler_signature(
    function: Callable[..., object], namespace: Mapping[str, Any], *, is_transactional: bool = False
) -> Signature:
    """Of a handler: `(event)` or `(event, metadata)`; of a transactional one `(event, tx)`, with metadata before or
    behind the tx."""
    if is_transactional:
        return _transactional_signature(function, namespace)
    fix = f"def {described(function)}(event: OrderPlaced) -> None, or with a second parameter of type EventMetadata"
    positional = _positional(function, fix)
    if positional is None:
        return Signature(UNTYPED, takes_metadata=False)
    required = [parameter for parameter in positional if parameter.default is Parameter.empty]
    if not positional or len(required) > 2:
        raise InvalidHandler(f"the handler {where(function)} takes {len(required)} parameters", fix=fix)
    annotations = [_annotation(parameter, function, namespace) for parameter in positional[:2]]
    takes_metadata = annotations[1:] == [EventMetadata] or (len(required) == 2 and annotations[1] is UNTYPED)
    if len(required) == 2 and not takes_metadata:
        if kind_of_tx(annotations[1]) is not None:
            fix = "@outbox.handler(transactional=True), for a handler that gets a transaction"
        raise InvalidHandler(
            f"the second parameter of the handler {where(function)} is annotated {_shown(annotations[1])}", fix=fix
        )
    return Signature(annotations[0], takes_metadata)


def _transactional_signature(function: Callable[..., object], namespace: Mapping[str, Any]) -> Signature:
    fix = f"def {described(function)}(event: OrderPlaced, tx) -> None, and a third parameter of type EventMetadata"
    positional = _positional(function, fix)
    if positional is None:
        return Signature(UNTYPED, takes_metadata=False)
    required = [parameter for parameter in positional if parameter.default is Parameter.empty]
    if not positional or len(required) > 3:
        raise InvalidHandler(f"the handler {where(function)} takes {len(required)} parameters", fix=fix)
    event, *others = positional
    tx, takes_metadata = None, False
    for place, parameter in enumerate(others[:2], 1):
        annotation = _annotation(parameter, function, namespace)
        is_tx = annotation is not EventMetadata and (parameter.name == "tx" or kind_of_tx(annotation) is not None)
        if is_tx and tx is None:
            tx = TxParameter(annotation, place)
        elif (
            not is_tx
            and not takes_metadata
            and (annotation is EventMetadata or (annotation is UNTYPED and parameter in required))
        ):
            takes_metadata = True
        elif parameter in required:
            raise InvalidHandler(
                f"the parameter {parameter.name} of the handler {where(function)} is annotated {_shown(annotation)}",
                fix=fix,
            )
        else:
            break
    return Signature(_annotation(event, function, namespace), takes_metadata, tx)


def batch_signature(function: Callable[..., object], namespace: Mapping[str, Any]) -> Signature:
    """Of a handler of batches: `(events)` or `(events, metadatas)`, lists both. The annotation is that of one event."""
    name = described(function)
    fix = f"def {name}(events: list[OrderPlaced]) -> None, or with a second parameter of type list[EventMetadata]"
    positional = _positional(function, fix)
    if positional is None:
        return Signature(UNTYPED, takes_metadata=False)
    required = [parameter for parameter in positional if parameter.default is Parameter.empty]
    if not positional or len(required) > 2:
        raise InvalidHandler(f"the handler {where(function)} takes {len(required)} parameters", fix=fix)
    events, *rest = [_annotation(parameter, function, namespace) for parameter in positional[:2]]
    is_second_needed = len(required) == 2
    takes_metadata = any(element_of(each) is EventMetadata for each in rest) or (is_second_needed and rest == [UNTYPED])
    if is_second_needed and not takes_metadata:
        raise InvalidHandler(
            f"the second parameter of the handler of batches {where(function)} is annotated {_shown(rest[0])}",
            fix=fix,
        )
    if (element := element_of(events)) is None:
        raise InvalidHandler(
            f"the handler {where(function)} gets batches, and takes {_shown(events)}, which is no list", fix=fix
        )
    return Signature(element, takes_metadata)


def element_of(annotation: Any) -> Any:
    """What a list holds that goes where this is annotated; None where no list goes."""
    if annotation is UNTYPED:
        return UNTYPED
    kind, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if not isinstance(kind, type) or not issubclass(list, kind) or len(arguments) > 1:
        return None
    return UNTYPED if not arguments or _says_nothing(arguments[0]) else arguments[0]


def fallback_signature(function: Callable[..., object], namespace: Mapping[str, Any]) -> Signature:
    """Of a fallback: `(event, failure)` or `(event, metadata, failure)`."""
    fix = f"def {described(function)}(event, failure: FailureContext) -> None"
    positional = _positional(function, fix)
    if positional is None:
        return Signature(UNTYPED, takes_metadata=False)
    required = [parameter for parameter in positional if parameter.default is Parameter.empty]
    if len(required) not in (2, 3):
        raise InvalidHandler(f"the fallback {where(function)} takes {len(required)} parameters", fix=fix)
    first, *between, last = [_annotation(parameter, function, namespace) for parameter in required]
    if last not in (FailureContext, UNTYPED) or between not in ([], [EventMetadata], [UNTYPED]):
        raise InvalidHandler(
            f"the parameters of the fallback {where(function)} are annotated "
            f"{', '.join(map(_shown, (first, *between, last)))}",
            fix=fix,
        )
    return Signature(first, takes_metadata=len(required) == 3)


def refuse_uncallable(function: Any, role: str = "handler", refusal: type[OutboxError] = InvalidHandler) -> None:
    """Refuse what cannot be called, and generators, whose body would not run."""
    if not callable(function):
        raise refusal(f"the {role} {function!r} cannot be called", fix="pass a function or a callable object")
    name = where(function) if refusal is InvalidHandler else described(function)
    for each in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise refusal(
                f"the {role} {name} is a generator: calling it would run nothing of its body",
                fix="return instead of yield",
            )


def where(function: object) -> str:
    """Its name with file and line, where Python knows them."""
    code = getattr(_plain_function(function), "__code__", None)
    place = f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code is not None else ""
    return described(function) + place


class Scope(msgspec.Struct, frozen=True):
    """Where a decorator stands: the names that annotations may use, and whether it is the body of a class."""

    names: Mapping[str, Any]
    is_class_body: bool = False

    @classmethod
    def of_caller(cls, depth: int) -> Scope:
        """Of the frame that many calls above the function that asks."""
        frame = sys._getframe(depth + 1)
        names = frame.f_locals
        # A class body has no fast locals, and names that the compiler gave it.
        is_class_body = names is not frame.f_globals and "__module__" in names and "__qualname__" in names
        around = _locals(frame.f_back) if is_class_body else {}
        return cls({**around, **_locals(frame)}, is_class_body)


def _locals(frame: FrameType | None) -> Mapping[str, Any]:
    """The names of a function or class; those of a module are found by its functions themselves."""
    return {} if frame is None or frame.f_locals is frame.f_globals else frame.f_locals


def _positional(function: Callable[..., object], fix: str) -> list[Parameter] | None:
    """The parameters that can be passed by place; None for a function that takes whatever comes."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # some builtins do not tell
        return None
    except NameError as error:
        raise _unresolved(function, error) from error
    missing = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    if missing:
        raise InvalidHandler(f"{where(function)} needs the keyword {missing[0]}, which nobody passes", fix=fix)
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    if not positional and any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return positional


def _annotation(parameter: Parameter, function: Callable[..., object], namespace: Mapping[str, Any]) -> Any:
    if parameter.annotation is Parameter.empty:
        return UNTYPED
    globals_ = getattr(_plain_function(function), "__globals__", {})
    holder = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        resolved = get_type_hints(holder, dict(globals_), dict(namespace))["it"]
    except Exception as error:  # an annotation may be any expression
        raise _unresolved(function, error) from error
    return UNTYPED if _says_nothing(resolved) else resolved


def _says_nothing(annotation: Any) -> bool:
    return annotation in (Any, object) or isinstance(annotation, TypeVar)


def _unresolved(function: object, error: Exception) -> InvalidHandler:
    return InvalidHandler(
        f"the annotations of {where(function)} cannot be resolved: {error}",
        fix="import or define the class before the handler, outside of `if TYPE_CHECKING`, or pass it: "
        "@outbox.handler(OrderPlaced)",
    )


def _plain_function(function: Any) -> Any:
    """The function at the bottom of partials, bound methods, decorators and callable objects."""
    while not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__func__"):
            function = function.__func__
        elif inspect.isfunction(vars(type(function)).get("__call__")):
            function = type(function).__call__
        else:
            return function  # a builtin, which has neither code nor annotations
    return function


def _shown(annotation: object) -> str:
    return getattr(annotation, "__name__", None) or repr(annotation)
