"""Which events a relay takes: `only=`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from aftercommit.errors import InvalidOption
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import name_of
from aftercommit.events.payloads import PayloadTypes

#: What makes a pattern of a name.
_WILD = frozenset("*?[")


class Only:
    """Classes, names and patterns, of which an event has to match one."""

    def __init__(self, given: Any, payloads: PayloadTypes) -> None:
        self._payloads = payloads
        self._names: set[str] = set()
        self._patterns: list[str] = []
        self._classes: list[Any] = []
        for each in _each_of(given):
            self._add(each)
        if not (self._names or self._patterns or self._classes):
            raise InvalidOption("only is empty, so nothing would be sent", fix="leave it out to send every event")

    def _add(self, given: Any) -> None:
        if isinstance(given, str | Enum):
            name = name_of(given, "only", 128)
            if _WILD.isdisjoint(name):
                self._names.add(name)
            else:
                self._patterns.append(name)
            return
        self._payloads.names_for(given)  # refuses what is no class of payloads
        self._classes.append(given)

    def __call__(self, event: EventEnvelope) -> bool:
        name = event.event_type
        return (
            name in self._names
            or any(fnmatchcase(name, pattern) for pattern in self._patterns)
            or any(self._payloads.matches(kind, name) for kind in self._classes)
        )


def only(given: Any, payloads: PayloadTypes) -> Callable[[EventEnvelope], bool] | None:
    """A predicate; None for all events."""
    return None if given is None else Only(given, payloads)


def _each_of(given: Any) -> Iterable[Any]:
    return given if isinstance(given, list | tuple | set | frozenset) else (given,)
