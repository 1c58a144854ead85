"""aftercommit: a transactional outbox. Write events in your transaction; they are delivered after the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aftercommit.api import Outbox
from aftercommit.claims import Claimed, DeadEvent, Lease
from aftercommit.config import OutboxConfig
from aftercommit.core.byhand import DrainResult
from aftercommit.core.dispatcher import OutboxDispatcher
from aftercommit.core.engine import Health, Stats
from aftercommit.core.handlers import DefaultListenerRegistry, MultiListenerRegistry
from aftercommit.core.inflight import DefaultInFlightTracker
from aftercommit.core.poller import OutboxPoller
from aftercommit.core.writer import OutboxWriter
from aftercommit.errors import (
    ColourMismatch,
    DuplicateListener,
    InvalidEvent,
    InvalidHeaders,
    InvalidListener,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    MissingDriver,
    NotAwaited,
    NotInTransaction,
    OutboxError,
    PayloadNotText,
    PayloadTooLarge,
    SchemaMismatch,
    SchemaMissing,
    StoreBusy,
    StoreForbidden,
    StoreReadOnly,
    StoreUnavailable,
    TransactionEnded,
    UndecodableRow,
    UnknownStore,
    UnroutableEvent,
    UnsupportedTransaction,
)
from aftercommit.event import EventEnvelope, EventStatus
from aftercommit.hooks import (
    AfterCommitHook,
    EventInterceptor,
    InFlightTracker,
    ListenerRegistry,
    MetricsExporter,
    OutboxPollerHandler,
    WriterHook,
)
from aftercommit.names import AggregateType, EventType
from aftercommit.outcome import DispatchResult, Done, RetryAfter, RetryAfterError
from aftercommit.ports import EventStore, TxContext
from aftercommit.retry import Exponential, ExponentialJitter, Fixed, Jittered, Linear, NoRetry, RetryPolicy
from aftercommit.stores.detect import register_store
from aftercommit.stores.scripts import schema_sql

if TYPE_CHECKING:
    from aftercommit.async_api import AsyncOutbox

__version__ = "0.1.0"

__all__ = [
    "AfterCommitHook",
    "AggregateType",
    "AsyncOutbox",
    "Claimed",
    "ColourMismatch",
    "DeadEvent",
    "DefaultInFlightTracker",
    "DefaultListenerRegistry",
    "DispatchResult",
    "Done",
    "DrainResult",
    "DuplicateListener",
    "EventEnvelope",
    "EventInterceptor",
    "EventStatus",
    "EventStore",
    "EventType",
    "Exponential",
    "ExponentialJitter",
    "Fixed",
    "Health",
    "InFlightTracker",
    "InvalidEvent",
    "InvalidHeaders",
    "InvalidListener",
    "InvalidName",
    "InvalidOption",
    "InvalidPayload",
    "InvalidSchedule",
    "Jittered",
    "Lease",
    "Linear",
    "ListenerRegistry",
    "MetricsExporter",
    "MissingDriver",
    "MultiListenerRegistry",
    "NoRetry",
    "NotAwaited",
    "NotInTransaction",
    "Outbox",
    "OutboxConfig",
    "OutboxDispatcher",
    "OutboxError",
    "OutboxPoller",
    "OutboxPollerHandler",
    "OutboxWriter",
    "PayloadNotText",
    "PayloadTooLarge",
    "RetryAfter",
    "RetryAfterError",
    "RetryPolicy",
    "SchemaMismatch",
    "SchemaMissing",
    "Stats",
    "StoreBusy",
    "StoreForbidden",
    "StoreReadOnly",
    "StoreUnavailable",
    "TransactionEnded",
    "TxContext",
    "UndecodableRow",
    "UnknownStore",
    "UnroutableEvent",
    "UnsupportedTransaction",
    "WriterHook",
    "register_store",
    "schema_sql",
]


def __getattr__(name: str) -> Any:
    """AsyncOutbox is loaded when it is asked for: a program of threads need not load asyncio."""
    if name == "AsyncOutbox":
        from aftercommit.async_api import AsyncOutbox

        return AsyncOutbox
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
