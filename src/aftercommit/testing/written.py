"""What a test sees of the table: the events that were written, and how they differ from those that it expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from aftercommit.errors import OutboxError, closest
from aftercommit.events.annotations import event_type_of
from aftercommit.events.claims import Claimed, ClaimRequest
from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.names import name_of
from aftercommit.events.payloads import PayloadTypes
from aftercommit.stores.sql.rows import AVAILABLE_AT, claimed_of
from aftercommit.stores.sql.statements import Statement
from aftercommit.stores.sql.store import SqlStore
from aftercommit.testing.clock import ClockedStatements

T_co = TypeVar("T_co", covariant=True)

#: As `claimed_of` reads a row, and behind it what a claim does not look at.
_ROWS: Final = "SELECT {claimed}, lease_epoch, 0, 0, status, {read:lease_until} FROM {table} ORDER BY position"

_NOBODY: Final = ClaimRequest(owner="nobody", limit=0, lock_timeout=timedelta(0), deadline=0.0)

#: Nobody asks how old a row is.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_SHOWN_AT_MOST: Final = 20

#: Told apart from every value that a field may have.
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Written(Generic[T_co]):
    """An event that was written: its payload as an object, and the envelope around it."""

    payload: T_co
    event: EventEnvelope
    #: How it stands, by the id of the handler; by "" where one row serves whoever takes it.
    statuses: Mapping[str, EventStatus] = field(default_factory=dict)

    @property
    def status(self) -> EventStatus:
        """Of all its rows together: dead if one is, done if all are."""
        found = set(self.statuses.values())
        return next(each for each in _WORST_FIRST if each in found)

    def __str__(self) -> str:
        key = "" if self.event.key is None else f" key={self.event.key!r}"
        name = self.event.event_type
        payload = repr(self.payload)
        shown = payload if payload.startswith(name) else f"{name} {payload}"
        return f"{shown}{key} {self.status.name}"


_WORST_FIRST: Final = (EventStatus.DEAD, EventStatus.RETRY, EventStatus.NEW, EventStatus.DONE)


class Row:
    """One row of the table."""

    def __init__(self, row: Sequence[Any], store: SqlStore) -> None:
        times = store.dialect.times
        *claimed, status, until = row
        self.event = claimed_of(claimed, _NOBODY, times, _EPOCH)
        self.status = EventStatus(status)
        #: When it may be claimed again, if nothing else stands in its way.
        self.due_at: datetime = times.read(claimed[AVAILABLE_AT])
        self.leased_until: datetime | None = None if until is None else times.read(until)

    @property
    def is_unfinished(self) -> bool:
        return self.status in (EventStatus.NEW, EventStatus.RETRY)

    @property
    def next_at(self) -> datetime:
        """When somebody can take it who does not hold it."""
        return self.due_at if self.leased_until is None else max(self.due_at, self.leased_until)


class Table:
    """Reads all rows there are, in the order in which they were written."""

    def __init__(self, store: SqlStore, statements: ClockedStatements) -> None:
        self._store = store
        self._rows: Statement = statements.of(_ROWS)

    async def rows(self) -> list[Row]:
        await self._store.open()
        return [Row(row, self._store) for row in await self._store.executor.fetch(self._rows.sql, writes=False)]


def written_in(rows: Iterable[Row], payloads: PayloadTypes, kind: Any = None) -> list[Written[Any]]:
    """The events of rows, each once, however many handlers it has a row for. Payloads are of the class that was named,
    where it is theirs, else of that which handlers have for them, else plain data."""
    events: dict[str, tuple[EventEnvelope, dict[str, EventStatus]]] = {}
    for row in rows:
        if isinstance(row.event, Claimed):
            key = row.event.lease.key
            events.setdefault(key.event_id, (row.event.event, {}))[1][key.handler_id] = row.status
    return [Written(_decoded(event, payloads, kind), event, statuses) for event, statuses in events.values()]


def _decoded(event: EventEnvelope, payloads: PayloadTypes, kind: Any) -> Any:
    if isinstance(kind, type) and event.event_type == event_type_of(kind):
        return payloads.decode(event, kind)
    try:
        return payloads.decode(event, object)
    except OutboxError:  # it is shown as it is, in a list of others
        return event.payload


def type_of(kind: Any) -> str:
    """The stored name of what a test names by its class or by its type."""
    return event_type_of(kind) if isinstance(kind, type) else name_of(kind, "event_type", 128)


class Expected:
    """What a test says was written: a class or a type with fields, or an object as a whole."""

    def __init__(self, kind: Any, given: Mapping[str, object], key: object, headers: Mapping[str, str] | None) -> None:
        self._whole = _ABSENT if isinstance(kind, type | str | Enum) else kind
        self.kind = kind if self._whole is _ABSENT else type(kind)
        self.name = type_of(self.kind)
        self._fields = given
        self._key = key
        self._headers = headers or {}

    def __str__(self) -> str:
        said = [f"{name}={value!r}" for name, value in self._fields.items()]
        said += [] if self._key is None else [f"key={self._key!r}"]
        said += [f"header {name}={value!r}" for name, value in self._headers.items()]
        shown = self.name if self._whole is _ABSENT else repr(self._whole)
        return shown + (f" with {', '.join(said)}" if said else "")

    def differences(self, written: Written[Any]) -> list[str]:
        """A line for each; none when it is what was expected."""
        lines = []
        if self._whole is not _ABSENT and self._whole != written.payload:
            lines += _between(self._whole, written.payload)
        for name, value in self._fields.items():
            lines += _difference(name, value, _field(written.payload, name), written.payload)
        if self._key is not None:
            key = written.event.key
            lines += _difference("key", self._key if key is None else _same_kind(self._key), key, None)
        for name, value in self._headers.items():
            lines += _difference(f"header {name}", value, written.event.headers.get(name), None)
        return lines


def _same_kind(key: object) -> object:
    """Keys are stored as text; write() takes numbers and UUIDs as well."""
    return str(key) if type(key).__name__ in ("int", "UUID") else key


def _field(payload: Any, name: str) -> Any:
    if isinstance(payload, Mapping):
        return payload.get(name, _ABSENT)
    return getattr(payload, name, _ABSENT)


def _difference(name: str, expected: object, actual: object, payload: object) -> list[str]:
    if actual is _ABSENT:
        near = closest(name, _names_in(payload))
        return [f"{name}: expected {expected!r}, and there is no such field" + (f"; {near} is one" if near else "")]
    return [] if expected == actual else [f"{name}: expected {expected!r}, was {actual!r}"]


def _names_in(payload: Any) -> list[str]:
    if isinstance(payload, Mapping):
        return [str(name) for name in payload]
    if is_dataclass(payload):
        return [each.name for each in fields(payload)]
    names: Iterable[object] = getattr(payload, "__struct_fields__", ()) or getattr(payload, "__dict__", ())
    return [str(name) for name in names]


def _between(expected: Any, actual: Any) -> list[str]:
    """Field by field where both have some, else as a whole."""
    names = _names_in(expected)
    lines = [line for name in names for line in _difference(name, _field(expected, name), _field(actual, name), actual)]
    return lines or [f"payload: expected {expected!r}, was {actual!r}"]


def missing_text(expected: Expected, count: int | None, found: int, everything: Sequence[Written[Any]]) -> str:
    """Why an assertion failed: what was expected, what came nearest, and what was written."""
    same = [each for each in everything if each.event.event_type == expected.name]
    if count is None:
        said = f"no {expected} was written"
    else:
        said = f"{expected} was expected {_times(count)} and written {_times(found)}"
    lines = [said]
    if same and (count is None or found < count):
        lines += _nearest(expected, same, everything)
    elif not same and everything:
        near = closest(expected.name, {each.event.event_type for each in everything})
        lines += [f"  no event of that type was written; the closest is {near}"] if near else []
    return "\n".join([*lines, *listed(everything)])


def _times(count: int) -> str:
    return f"{count} time{'' if count == 1 else 's'}"


def _nearest(expected: Expected, same: Sequence[Written[Any]], everything: Sequence[Written[Any]]) -> list[str]:
    differing = [(each, lines) for each in same if (lines := expected.differences(each))]
    if not differing:
        return []
    nearest, lines = min(differing, key=lambda pair: len(pair[1]))
    return [f"the nearest is number {everything.index(nearest) + 1}:", *(f"    {line}" for line in lines)]


def listed(everything: Sequence[Written[Any]]) -> list[str]:
    if not everything:
        return ["nothing was written"]
    lines = [f"what was written ({len(everything)}):"]
    lines += [f"  {number}. {each}" for number, each in enumerate(everything[:_SHOWN_AT_MOST], 1)]
    more = len(everything) - _SHOWN_AT_MOST
    return lines + ([f"  … and {more} more"] if more > 0 else [])
