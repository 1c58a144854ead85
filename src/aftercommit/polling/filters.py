"""Which rows somebody asks for, by the keywords of the queries, checked before anything is asked."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypedDict, Unpack
from uuid import UUID

from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration
from aftercommit.events.envelope import EventStatus
from aftercommit.events.names import name_of, text_of
from aftercommit.events.records import EventFilter, EventRecord


class Filters(TypedDict, total=False):
    """The keywords that all queries have. A row has to have all that is given."""

    event_type: str | Enum | None
    aggregate_type: str | Enum | None
    #: Of one handler; "" finds the rows that serve whoever takes the type.
    handler_id: str | None
    aggregate_id: str | int | UUID | None
    key: str | int | UUID | None
    tenant_id: str | None
    #: The class of the last error, or a part of its text, letter by letter.
    error: str | None
    #: Written longer ago than that.
    older_than: Duration | None


def filter_of(status: EventStatus | None = None, **given: Unpack[Filters]) -> EventFilter:
    names: dict[str, Any] = dict(given)
    for unknown in names.keys() - Filters.__annotations__.keys():
        known = ", ".join(Filters.__annotations__)
        raise InvalidOption(f"{unknown!r} is nothing that events are found by", fix=f"use one of {known}")
    for name in [name for name, value in names.items() if value is None]:
        del names[name]
    for name, limit in (("event_type", 128), ("aggregate_type", 64)):
        if name in names:
            names[name] = name_of(names[name], name, limit)
    for name, limit in (("aggregate_id", 128), ("key", 255)):
        if name in names:
            names[name] = text_of(names[name], name, limit)
    for name in ("handler_id", "tenant_id", "error"):
        if not isinstance(names.get(name, ""), str):
            raise InvalidOption(f"{name} is {names[name]!r}", fix=f"pass {name} as a str")
    if "older_than" in names:
        names["older_than"] = duration(names["older_than"], name="older_than")
    return EventFilter(**names, status=status)


def place_of(after: EventRecord | None) -> EventRecord | None:
    if after is not None and not isinstance(after, EventRecord):
        raise InvalidOption(f"after is {after!r}", fix="pass the last record of the page before")
    return after


def at_least_one(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name} is {value!r}", fix=f"pass {name} as an int of at least 1")
    return value


def above_zero(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InvalidOption(f"{name} is {value!r}", fix=f"pass {name} as a number above 0")
    return value
