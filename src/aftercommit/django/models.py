"""The table of events as Django sees it. It is read here, and written by the outbox alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, models

from aftercommit.django.conf import table_of
from aftercommit.events.columns import COLUMNS, Column, Kind
from aftercommit.events.envelope import EventStatus
from aftercommit.stores.sql.rows import IN_MICROS, IN_UTC


class InstantField(models.Field):
    """An instant in whichever type the database has it: microseconds on SQLite, a time in UTC elsewhere."""

    description = "Instant in UTC"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
            return value
        return (IN_UTC if isinstance(value, datetime) else IN_MICROS).read(value)


#: What nobody looks at who looks at events.
_HIDDEN: Final = {"partition_no", "done_handlers", "scheduled_at", "locked_at", "lease_epoch"}

_FIELDS: Final[Mapping[Kind, type[models.Field]]] = {
    Kind.SMALL: models.SmallIntegerField,
    Kind.NUMBER: models.IntegerField,
    Kind.LARGE: models.BigIntegerField,
    Kind.NAME: models.CharField,
    Kind.LABEL: models.CharField,
    Kind.NOTE: models.TextField,
    Kind.TEXT: models.TextField,
    Kind.BYTES: models.BinaryField,
    Kind.INSTANT: InstantField,
}

#: What Django wants to know, and the database does not.
_MORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "position": {"primary_key": True},
    "handler_id": {"blank": True},
    "event_key": {"verbose_name": "key"},
    "status": {"choices": [(status.value, status.name) for status in EventStatus]},
}


def _field(column: Column) -> models.Field:
    options: dict[str, Any] = {"null": column.is_nullable, **_MORE.get(column.name, {})}
    if column.length is not None:
        options["max_length"] = column.length
    if column.default is not None:
        options["default"] = column.default
    return _FIELDS[column.kind](**options)


class Event(models.Model):
    """One row of the outbox."""

    vars().update({column.name: _field(column) for column in COLUMNS if column.name not in _HIDDEN})

    class Meta:
        app_label = "aftercommit"
        db_table = table_of(DEFAULT_DB_ALIAS)
        #: Ids grow with time, and every database has an index for them.
        ordering = ("-event_id", "-handler_id")
        unique_together = (("event_id", "handler_id"),)
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return f"{self.event_type} {self.event_id}"
