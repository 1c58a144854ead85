"""Attribute paths into an object, such as "order.id", checked against its class before there is an object."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from inspect import isroutine
from operator import attrgetter
from typing import Any, get_type_hints

import msgspec

from aftercommit.errors import InvalidPayloadType


def path_getter(kind: type, path: str) -> Callable[[Any], Any]:
    """Takes the value out of an object of the class. Steps whose type is not known are left to the day."""
    owner: type | None = kind
    for step in path.split("."):
        if not step.isidentifier():
            raise InvalidPayloadType(
                f"{path!r} is no attribute path", fix='name attributes, as in "order.id", or pass a function'
            )
        if owner is not None:
            owner = _type_of(owner, step, path)
    return attrgetter(path)


def _type_of(owner: type, step: str, path: str) -> type | None:
    """The class of an attribute, None when nothing says so. Refuses an attribute that is not there."""
    member = getattr(owner, step, None)
    if isroutine(member):
        raise InvalidPayloadType(
            f"{step!r} of {owner.__name__} is a method, so {path!r} would not give its result",
            fix="make it a property, or pass a function: lambda event: …",
        )
    if not hasattr(owner, step) and step not in set(_names(owner)):
        if not _is_closed(owner):
            return None
        raise InvalidPayloadType(
            f"{owner.__name__} has no attribute {step!r}, as in {path!r}; it has {', '.join(_names(owner)) or 'none'}",
            fix="name an attribute that it has, or pass a function",
        )
    return _hint(member.fget, "return") if isinstance(member, property) else _hint(owner, step)


def _names(kind: type) -> Iterator[str]:
    """Attributes that objects of the class will have, as far as the class says."""
    for base in reversed(kind.__mro__):
        yield from (name for name in _annotations(base) if not name.startswith("__"))
    yield from (attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))


def _annotations(kind: type) -> Any:
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations  # noqa: PLC0415

        return get_annotations(kind, format=Format.FORWARDREF)  # a name that is defined later is no error
    return vars(kind).get("__annotations__", {})


def _is_closed(kind: type) -> bool:
    """Whether the class says all its attributes: a plain one may set more of them in __init__ or __getattr__."""
    if hasattr(kind, "__getattr__") and not hasattr(kind, "model_fields"):
        return False
    return (
        kind.__module__ == "builtins"
        or bool(_annotations(kind))
        or dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct)
        or hasattr(kind, "__attrs_attrs__")
        or hasattr(kind, "model_fields")
    )


def _hint(owner: Any, name: str) -> type | None:
    try:
        hint = get_type_hints(owner).get(name)
    except Exception:  # a name that is not defined yet, or not here
        return None
    return hint if isinstance(hint, type) and hint is not object else None
