"""The columns of the event table, said once. The INSERT, what a claim reads, SQLAlchemy's tables and Django's model
follow from this list; the numbered migrations are history, and a test compares what they make with it."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """What a column holds, whatever a database calls it."""

    SMALL = "an integer of two bytes"
    NUMBER = "an integer of four bytes"
    LARGE = "an integer of eight bytes"
    NAME = "text of limited length that compares byte by byte"
    LABEL = "text of limited length that nobody compares"
    NOTE = "some thousand characters of text"
    TEXT = "text of any length"
    BYTES = "bytes of any length"
    INSTANT = "a point in time in UTC"


#: An INSERT takes the value from the event as it is, by a parameter of the column's name.
GIVEN: Final = "the parameter"


class Column(NamedTuple):
    """One column of the table."""

    name: str
    kind: Kind
    length: int | None = None
    #: What an INSERT writes: GIVEN, or an expression in the words of the statements; None where the default is right.
    value: str | None = None
    is_nullable: bool = False
    default: int | str | None = None
    #: Whether a claim reads it, to make an event of it.
    is_claimed: bool = True


COLUMNS: Final = (
    Column("position", Kind.LARGE),
    Column("event_id", Kind.NAME, 36, value=GIVEN),
    Column("handler_id", Kind.NAME, 255, value=GIVEN, default=""),
    Column("event_type", Kind.NAME, 128, value=GIVEN),
    Column("aggregate_type", Kind.NAME, 64, value=GIVEN),
    Column("aggregate_id", Kind.NAME, 128, value=GIVEN, is_nullable=True),
    Column("tenant_id", Kind.NAME, 64, value=GIVEN, is_nullable=True),
    Column("event_key", Kind.NAME, 255, value=GIVEN, is_nullable=True),
    Column("partition_no", Kind.SMALL, value=GIVEN, is_claimed=False),
    Column("payload", Kind.TEXT, value=GIVEN, is_nullable=True),
    Column("payload_bytes", Kind.BYTES, value=GIVEN, is_nullable=True),
    Column("content_type", Kind.LABEL, 255, value=GIVEN),
    Column("payload_version", Kind.NUMBER, value=GIVEN, default=1),
    Column("headers", Kind.TEXT, value=GIVEN, is_nullable=True),
    Column("done_handlers", Kind.TEXT, is_nullable=True),
    Column("status", Kind.SMALL, default=0, is_claimed=False),
    Column("attempts", Kind.NUMBER, default=0),
    Column("abandoned", Kind.SMALL, default=0),
    Column("occurred_at", Kind.INSTANT, value=GIVEN),
    Column("scheduled_at", Kind.INSTANT, value=GIVEN, is_nullable=True),
    Column("created_at", Kind.INSTANT, value="{now}"),
    # A delay is added to the database's clock; only a time that the caller chose is taken as it is.
    Column("available_at", Kind.INSTANT, value="coalesce(:available_at, {now_plus:delay})"),
    Column("done_at", Kind.INSTANT, is_nullable=True, is_claimed=False),
    Column("last_error", Kind.NOTE, is_nullable=True, is_claimed=False),
    # Born leased when there is an owner.
    Column("locked_by", Kind.LABEL, 128, is_nullable=True, value=":owner", is_claimed=False),
    Column(
        "locked_at",
        Kind.INSTANT,
        is_nullable=True,
        value="CASE WHEN :owner IS NOT NULL THEN {now} END",
        is_claimed=False,
    ),
    Column("lease_until", Kind.INSTANT, is_nullable=True, value="{now_plus:lock_timeout}", is_claimed=False),
    Column("lease_epoch", Kind.NUMBER, default=0, value=":epoch", is_claimed=False),
    # Only the INSERT of events that have one names it.
    Column("unique_key", Kind.NAME, 255, is_nullable=True),
)

#: What an INSERT names, in order.
WRITTEN: Final = tuple(column for column in COLUMNS if column.value is not None)

#: What the INSERT of a plain event names, in order; it has the defaults of all others.
PLAIN: Final = tuple(
    column
    for column in WRITTEN
    if column.name
    in (
        *("event_id", "event_type", "aggregate_type", "aggregate_id", "event_key", "partition_no", "payload"),
        *("headers", "occurred_at"),
    )
)

#: What a claim reads, in order. Behind them each claim has the epoch before it, whether it took the row over from
#: somebody else, and the database's clock.
CLAIMED: Final = tuple(column for column in COLUMNS if column.is_claimed)

#: The parameters of the INSERT.
PARAMETERS: Final = (
    *((column.name, column.kind) for column in WRITTEN if column.value == GIVEN),
    ("available_at", Kind.INSTANT),
    ("delay", Kind.LARGE),
    ("owner", Kind.NAME),
    ("lock_timeout", Kind.LARGE),
    ("epoch", Kind.NUMBER),
)

#: Those of the INSERT where some have a unique key.
UNIQUE_PARAMETERS: Final = (*PARAMETERS, ("unique_key", Kind.NAME))
