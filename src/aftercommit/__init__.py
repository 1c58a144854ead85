"""aftercommit: a transactional outbox. Write events in your transaction; they are delivered after the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aftercommit.config import OutboxConfig
from aftercommit.delivery.leases import DefaultInFlightTracker
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.engine import Health, Stats
from aftercommit.errors import (
    ColourMismatch,
    DuplicateHandler,
    DuplicateListener,
    HandlerTimeout,
    InvalidEvent,
    InvalidHandler,
    InvalidHeaders,
    InvalidListener,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    InvalidPayloadType,
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
    UndecodablePayload,
    UndecodableRow,
    UnknownStore,
    UnroutableEvent,
    UnsupportedTransaction,
)
from aftercommit.events.claims import Claimed, DeadEvent, Lease
from aftercommit.events.classes import outbox_event
from aftercommit.events.context import ContextProvider, current_context
from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.fleet import Cluster, ClusterMember
from aftercommit.events.ids import EventId
from aftercommit.events.metadata import EventMetadata, FailureContext, StoredError
from aftercommit.events.names import AggregateType, EventType
from aftercommit.events.order import BlockedKey
from aftercommit.events.outcome import (
    DeadLetter,
    Discard,
    DispatchResult,
    Done,
    RetryAfter,
    RetryAfterError,
    Unavailable,
)
from aftercommit.events.retry import Exponential, ExponentialJitter, Fixed, Jittered, Linear, NoRetry, RetryPolicy
from aftercommit.events.serializers import JsonSerializer, MsgpackSerializer, Serializer
from aftercommit.handlers.handler import Handler
from aftercommit.handlers.listeners import DefaultListenerRegistry, MultiListenerRegistry
from aftercommit.handlers.options import any_event
from aftercommit.handlers.set import HandlerSet
from aftercommit.hooks import (
    AfterCommitHook,
    EventInterceptor,
    InFlightTracker,
    ListenerRegistry,
    MetricsExporter,
    OutboxPollerHandler,
    WriterHook,
)
from aftercommit.outbox import Outbox
from aftercommit.polling.manual import DrainResult
from aftercommit.polling.poller import OutboxPoller
from aftercommit.ports import EventStore, TxContext
from aftercommit.stores.detect import register_store
from aftercommit.stores.scripts import schema_sql
from aftercommit.writing.writer import OutboxWriter

if TYPE_CHECKING:
    from aftercommit.async_outbox import AsyncOutbox

__version__ = "0.1.0"

__all__ = [
    "AfterCommitHook",
    "AggregateType",
    "AsyncOutbox",
    "BlockedKey",
    "Claimed",
    "Cluster",
    "ClusterMember",
    "ColourMismatch",
    "ContextProvider",
    "DeadEvent",
    "DeadLetter",
    "DefaultInFlightTracker",
    "DefaultListenerRegistry",
    "Discard",
    "DispatchResult",
    "Done",
    "DrainResult",
    "DuplicateHandler",
    "DuplicateListener",
    "EventEnvelope",
    "EventId",
    "EventInterceptor",
    "EventMetadata",
    "EventStatus",
    "EventStore",
    "EventType",
    "Exponential",
    "ExponentialJitter",
    "FailureContext",
    "Fixed",
    "Handler",
    "HandlerSet",
    "HandlerTimeout",
    "Health",
    "InFlightTracker",
    "InvalidEvent",
    "InvalidHandler",
    "InvalidHeaders",
    "InvalidListener",
    "InvalidName",
    "InvalidOption",
    "InvalidPayload",
    "InvalidPayloadType",
    "InvalidSchedule",
    "Jittered",
    "JsonSerializer",
    "Lease",
    "Linear",
    "ListenerRegistry",
    "MetricsExporter",
    "MissingDriver",
    "MsgpackSerializer",
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
    "Serializer",
    "Stats",
    "StoreBusy",
    "StoreForbidden",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoredError",
    "TransactionEnded",
    "TxContext",
    "Unavailable",
    "UndecodablePayload",
    "UndecodableRow",
    "UnknownStore",
    "UnroutableEvent",
    "UnsupportedTransaction",
    "WriterHook",
    "any_event",
    "current_context",
    "outbox_event",
    "register_store",
    "schema_sql",
]


def __getattr__(name: str) -> Any:
    """AsyncOutbox is loaded when it is asked for: a program of threads need not load asyncio."""
    if name == "AsyncOutbox":
        from aftercommit.async_outbox import AsyncOutbox

        return AsyncOutbox
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
