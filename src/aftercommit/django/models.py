"""The table of events as Django sees it. It is read here, and written by the outbox alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import DEFAULT_DB_ALIAS, models

from aftercommit.django.conf import table_of
from aftercommit.events.envelope import EventStatus
from aftercommit.stores.sql.rows import IN_MICROS, IN_UTC


class InstantField(models.Field):
    """An instant in whichever type the database has it: microseconds on SQLite, a time in UTC elsewhere."""

    description = "Instant in UTC"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
            return value
        return (IN_UTC if isinstance(value, datetime) else IN_MICROS).read(value)


class Event(models.Model):
    """One row of the outbox."""

    position = models.BigIntegerField(primary_key=True)
    event_id = models.CharField(max_length=36)
    handler_id = models.CharField(max_length=255, blank=True, default="")
    event_type = models.CharField(max_length=128)
    aggregate_type = models.CharField(max_length=64)
    aggregate_id = models.CharField(max_length=128, null=True)
    tenant_id = models.CharField(max_length=64, null=True)
    event_key = models.CharField("key", max_length=255, null=True)
    payload = models.TextField(null=True)
    payload_bytes = models.BinaryField(null=True)
    content_type = models.CharField(max_length=255)
    payload_version = models.IntegerField(default=1)
    headers = models.TextField(null=True)
    status = models.SmallIntegerField(default=0, choices=[(status.value, status.name) for status in EventStatus])
    attempts = models.IntegerField(default=0)
    abandoned = models.SmallIntegerField(default=0)
    occurred_at = InstantField()
    created_at = InstantField()
    available_at = InstantField()
    done_at = InstantField(null=True)
    last_error = models.TextField(null=True)
    locked_by = models.CharField(max_length=128, null=True)
    lease_until = InstantField(null=True)

    class Meta:
        app_label = "aftercommit"
        db_table = table_of(DEFAULT_DB_ALIAS)
        #: Ids grow with time, and every database has an index for them.
        ordering = ("-event_id", "-handler_id")
        unique_together = (("event_id", "handler_id"),)
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return f"{self.event_type} {self.event_id}"
