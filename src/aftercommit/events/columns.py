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


class Column(NamedTuple):
    """One column. The value of an INSERT is a parameter of the same name, or said in the words of the statements."""

    name: str
    kind: Kind
    length: int | None = None
    is_nullable: bool = False
    default: int | str | None = None
    #: What an INSERT writes; None where the default is right.
    value: str | None = None
    #: Whether a claim reads it, to make an event of it.
    is_claimed: bool = True

    @property
    def is_given(self) -> bool:
        """Whether an INSERT takes it from the event as it is."""
        return self.value == f":{self.name}"


def _given(
    name: str,
    kind: Kind,
    length: int | None = None,
    *,
    is_nullable: bool = False,
    default: int | str | None = None,
    is_claimed: bool = True,
) -> Column:
    return Column(name, kind, length, is_nullable, default, f":{name}", is_claimed)


COLUMNS: Final = (
    Column("position", Kind.LARGE),
    _given("event_id", Kind.NAME, 36),
    _given("handler_id", Kind.NAME, 255, default=""),
    _given("event_type", Kind.NAME, 128),
    _given("aggregate_type", Kind.NAME, 64),
    _given("aggregate_id", Kind.NAME, 128, is_nullable=True),
    _given("tenant_id", Kind.NAME, 64, is_nullable=True),
    _given("event_key", Kind.NAME, 255, is_nullable=True),
    _given("partition_no", Kind.SMALL, is_claimed=False),
    _given("payload", Kind.TEXT, is_nullable=True),
    _given("payload_bytes", Kind.BYTES, is_nullable=True),
    _given("content_type", Kind.LABEL, 255),
    _given("payload_version", Kind.NUMBER, default=1),
    _given("headers", Kind.TEXT, is_nullable=True),
    Column("done_handlers", Kind.TEXT, is_nullable=True),
    Column("status", Kind.SMALL, default=0, is_claimed=False),
    Column("attempts", Kind.NUMBER, default=0),
    Column("abandoned", Kind.SMALL, default=0),
    _given("occurred_at", Kind.INSTANT),
    _given("scheduled_at", Kind.INSTANT, is_nullable=True),
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
)

#: What an INSERT names, in order.
WRITTEN: Final = tuple(column for column in COLUMNS if column.value is not None)

#: What a claim reads, in order. Behind them each claim has the epoch before it, whether it took the row over from
#: somebody else, and the database's clock.
CLAIMED: Final = tuple(column for column in COLUMNS if column.is_claimed)

#: The parameters of the INSERT.
PARAMETERS: Final = (
    *((column.name, column.kind) for column in WRITTEN if column.is_given),
    ("available_at", Kind.INSTANT),
    ("delay", Kind.LARGE),
    ("owner", Kind.NAME),
    ("lock_timeout", Kind.LARGE),
    ("epoch", Kind.NUMBER),
)
