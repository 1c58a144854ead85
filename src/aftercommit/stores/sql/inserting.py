"""How events become the parameters of an INSERT: one, or many at once."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from aftercommit.events.claims import NewEvent
from aftercommit.events.fields import JSON
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.rows import BETWEEN, Times, to_micros
from aftercommit.stores.sql.statements import Statements


def insert(tx: Tx, events: Sequence[NewEvent], sql: Statements, dialect: Dialect) -> Coroutine[Any, Any, object]:
    """To be awaited at once."""
    statements, times = inserted(events), dialect.times
    if len(events) == 1:  # nearly always, and with as few calls as there can be
        new, statement = events[0], sql[statements[0]]
        if statements is _ANY:
            return tx.execute(statement.sql, statement.values(insert_values(new, times)))
        event, owner = new.event, new.owner
        values: dict[str, object] = {
            "event_id": event.event_id,
            "event_type": event.event_type,
            "aggregate_type": event.aggregate_type,
            "aggregate_id": event.aggregate_id,
            "event_key": event.key,
            "partition_no": new.partition,
            "payload": event.payload,
            "headers": times.headers.encode(event.headers) if event.headers else None,
            "occurred_at": times.write(event.occurred_at),
            "owner": owner,
            "lock_timeout": None if owner is None else to_micros(new.lock_timeout),
        }
        return tx.execute(statement.sql, statement.values(values))
    statement = sql[statements[dialect.array is not None]]
    columns: Iterable[Sequence[Any]]
    if statements is _ANY:
        columns = zip(*[statement.values(insert_values(each, times)) for each in events], strict=True)
    else:
        values_of = plain_columns(events, times)
        columns = [values_of[name] for name in statement.names]
    if dialect.array is not None:
        return tx.execute(statement.sql, dialect.columns(statement.names, columns))
    # In one call, which writes all or none.
    return tx.execute_many(statement.sql, list(zip(*columns, strict=True)))


def insert_values(new: NewEvent, times: Times) -> dict[str, object]:
    """The parameters of the INSERT."""
    event = new.event
    is_text = isinstance(event.payload, str)
    scheduled = None if event.available_at is None else times.write(event.available_at)
    delay = 0 if event.deliver_after is None else to_micros(event.deliver_after)
    return {
        "event_id": event.event_id,
        "handler_id": new.handler_id,
        "event_type": event.event_type,
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
        "tenant_id": event.tenant_id,
        "event_key": event.key,
        "partition_no": new.partition,
        "payload": event.payload if is_text else None,
        "payload_bytes": None if is_text else event.payload,
        "content_type": event.content_type,
        "payload_version": event.payload_version,
        "headers": times.headers.encode(event.headers) if event.headers else None,
        "occurred_at": times.write(event.occurred_at),
        "scheduled_at": scheduled,
        # A delay is added to the database's clock; only an explicit time is taken as it is.
        "available_at": None if event.deliver_after is not None else scheduled,
        "delay": delay,
        "owner": new.owner,
        "lock_timeout": None if new.owner is None else to_micros(new.lock_timeout),
        "epoch": 0 if new.owner is None else 1,
    }


#: The statements that write one and many: any events, and plain ones, which are free or leased. Nearly all are plain:
#: JSON for at once, for all handlers, of no tenant. What the others may have are constants in a statement for these.
_ANY: Final = ("insert", "insert_many")
_FREE: Final = ("insert_free", "insert_many_free")
_LEASED: Final = ("insert_leased", "insert_many_leased")


def inserted(events: Sequence[NewEvent]) -> tuple[str, str]:
    """The statements that are right for all of these."""
    owner = events[0].owner
    for new in events:
        event = new.event
        payload = event.payload
        if (
            new.handler_id
            or new.owner != owner
            or event.available_at is not None
            or event.tenant_id is not None
            or event.payload_version != 1
            or event.content_type != JSON
            or not isinstance(payload, str)
            or BETWEEN in payload
        ):
            return _ANY
    return _FREE if owner is None else _LEASED


def plain_columns(rows: Sequence[NewEvent], times: Times) -> dict[str, Sequence[Any]]:
    """The parameters of plain events: for each the values of all, in order."""
    events, owner, encode, write = [new.event for new in rows], rows[0].owner, times.headers.encode, times.write
    # What is composed together has occurred at the same time.
    first = events[0].occurred_at
    at_first = write(first)
    return {
        "event_id": [event.event_id for event in events],
        "event_type": [event.event_type for event in events],
        "aggregate_type": [event.aggregate_type for event in events],
        "aggregate_id": [event.aggregate_id for event in events],
        "event_key": [event.key for event in events],
        "partition_no": [new.partition for new in rows],
        "payload": (payloads := [event.payload for event in events]),
        "texts": payloads,  # as it is called where many are sent as one
        "headers": [encode(event.headers) if event.headers else None for event in events],
        "occurred_at": [at_first if (at := event.occurred_at) is first else write(at) for event in events],
        "owner": [owner] * len(rows),
        "lock_timeout": [None if owner is None else to_micros(new.lock_timeout) for new in rows],
    }


def unique_values(new: NewEvent, times: Times) -> dict[str, object]:
    """The parameters of the INSERT that names the unique key."""
    return insert_values(new, times) | {"unique_key": new.event.unique_key}
