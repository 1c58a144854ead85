"""Rows of the table as people see them: which ones they ask for, and what they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from aftercommit.events.envelope import EventStatus

#: How many failures of a row are kept, the last ones.
KEPT_FAILURES: Final = 10


class EventRecord(msgspec.Struct, frozen=True):
    """A row as far as it can be read: headers and times of the application that cannot be read are left out. Times are
    the database's, but for `occurred_at` and `scheduled_at`."""

    event_id: str
    handler_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    key: str | None
    payload: str | bytes
    headers: dict[str, str]
    attempts: int
    #: Of the last attempt that failed; empty when none did, or the event was delivered in the end.
    last_error: str
    created_at: datetime
    position: int
    status: EventStatus
    #: Deliveries that began as a suspect and never reported.
    abandoned: int
    partition: int
    content_type: str
    payload_version: int
    occurred_at: datetime | None
    #: The time that the writer asked for.
    scheduled_at: datetime | None
    #: When it is due, or was.
    available_at: datetime
    #: When it ended, DONE or DEAD.
    done_at: datetime | None
    #: Who holds it, or held it last, if nobody gave the lease back.
    locked_by: str | None
    #: The lease stands until then, on the database's clock.
    lease_until: datetime | None
    unique_key: str | None = None

    @property
    def dead_at(self) -> datetime | None:
        """When it died."""
        return self.done_at if self.status is EventStatus.DEAD else None


#: What `outbox.dead` gives.
DeadEvent = EventRecord


class EventFilter(msgspec.Struct, frozen=True):
    """Which rows: those that have all of this; what is None does not matter."""

    event_type: str | None = None
    aggregate_type: str | None = None
    handler_id: str | None = None
    aggregate_id: str | None = None
    key: str | None = None
    tenant_id: str | None = None
    #: The class of the last error, or a part of its text, letter by letter.
    error: str | None = None
    #: Written longer ago than that.
    older_than: timedelta | None = None
    status: EventStatus | None = None


class Failure(msgspec.Struct, frozen=True):
    """One failed delivery of a row, kept beside it."""

    event_id: str
    #: The row's: '' where one row serves all handlers.
    handler_id: str
    #: When it was written down, on the database's clock.
    failed_at: datetime
    #: The number of the attempt since the last replay; 0 when nobody was called.
    attempt: int
    #: Whose failure it was; '' when nobody was called.
    handler: str
    #: The process that reported it: its `owner_id`.
    instance: str
    error_class: str
    message: str
    #: At most 8,000 characters, secrets masked; None where there was no exception.
    traceback: str | None


def last_of_each(failures: Sequence[Failure]) -> list[Failure]:
    """So many of each row as are kept; a store may cut off the rest a little later."""
    left = Counter({each.handler_id: KEPT_FAILURES for each in failures})
    kept: list[Failure] = []
    for each in reversed(failures):
        if left[each.handler_id] > 0:
            left[each.handler_id] -= 1
            kept.append(each)
    return kept[::-1]


class TypeSummary(msgspec.Struct, frozen=True):
    """The unfinished and the dead rows of one event type at one handler ('': the row serves whoever takes the type)."""

    event_type: str
    handler_id: str
    new: int = 0
    retry: int = 0
    dead: int = 0
    #: How long the oldest one has been due that is not delivered; None when none is due.
    oldest_due: timedelta | None = None


class Summary(msgspec.Struct, frozen=True):
    """Rows by event type and handler, in the order of their names."""

    types: tuple[TypeSummary, ...]
    #: There were more rows than were looked at: the counts stand for so many or more.
    is_partial: bool = False
