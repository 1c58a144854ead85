"""What a handler may know beside the payload: about the event, and, in a fallback, about the failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class EventMetadata:
    """About the event and this delivery. A handler that has a second parameter gets it there."""

    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    key: str | None
    handler_id: str
    #: 1 for the first delivery; each failed one adds 1.
    attempt: int
    #: The database's time of the row; from memory, right after the commit, the application's time of the event.
    created_at: datetime
    headers: Mapping[str, str]
    context: Mapping[str, str]

    @property
    def is_retry(self) -> bool:
        return self.attempt > 1


@dataclass(frozen=True, slots=True)
class FailureContext:
    """Why a fallback is called."""

    event_id: str
    handler_id: str
    key: str | None
    created_at: datetime
    #: Failed deliveries, this one included.
    failure_count: int
    #: What the handler raised; a StoredError where only the text is left of it.
    last_error: BaseException
    #: True when the attempts are used up, False when the error was not worth another.
    retries_exhausted: bool
    context: Mapping[str, str]


class StoredError(Exception):
    """An error of which only the text is left, because the process that met it is gone."""
