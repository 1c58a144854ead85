"""aftercommit: a transactional outbox. Write events in your transaction; they are delivered after the commit."""

from __future__ import annotations

from importlib import import_module

#: Type checkers read it as true. To take it from `typing` would cost more than all the rest of this import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from aftercommit.async_outbox import AsyncOutbox
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

#: Where each name is at home. A program loads what it uses when it uses it: the first look at a name loads its module.
_HOMES = {
    "async_outbox": ("AsyncOutbox",),
    "config": ("OutboxConfig",),
    "delivery.leases": ("DefaultInFlightTracker",),
    "delivery.worker": ("OutboxDispatcher",),
    "engine": ("Health", "Stats"),
    "errors": (
        "ColourMismatch", "DuplicateHandler", "DuplicateListener", "HandlerTimeout", "InvalidEvent", "InvalidHandler",
        "InvalidHeaders", "InvalidListener", "InvalidName", "InvalidOption", "InvalidPayload", "InvalidPayloadType",
        "InvalidSchedule", "MissingDriver", "NotAwaited", "NotInTransaction", "OutboxError", "PayloadNotText",
        "PayloadTooLarge", "SchemaMismatch", "SchemaMissing", "StoreBusy", "StoreForbidden", "StoreReadOnly",
        "StoreUnavailable", "TransactionEnded", "UndecodablePayload", "UndecodableRow", "UnknownStore",
        "UnroutableEvent", "UnsupportedTransaction",
    ),
    "events.claims": ("Claimed", "DeadEvent", "Lease"),
    "events.classes": ("outbox_event",),
    "events.context": ("ContextProvider", "current_context"),
    "events.envelope": ("EventEnvelope", "EventStatus"),
    "events.fleet": ("Cluster", "ClusterMember"),
    "events.ids": ("EventId",),
    "events.metadata": ("EventMetadata", "FailureContext", "StoredError"),
    "events.names": ("AggregateType", "EventType"),
    "events.order": ("BlockedKey",),
    "events.outcome": (
        "DeadLetter", "Discard", "DispatchResult", "Done", "RetryAfter", "RetryAfterError", "Unavailable",
    ),
    "events.retry": ("Exponential", "ExponentialJitter", "Fixed", "Jittered", "Linear", "NoRetry", "RetryPolicy"),
    "events.serializers": ("JsonSerializer", "MsgpackSerializer", "Serializer"),
    "handlers.handler": ("Handler",),
    "handlers.listeners": ("DefaultListenerRegistry", "MultiListenerRegistry"),
    "handlers.options": ("any_event",),
    "handlers.set": ("HandlerSet",),
    "hooks": (
        "AfterCommitHook", "EventInterceptor", "InFlightTracker", "ListenerRegistry", "MetricsExporter",
        "OutboxPollerHandler", "WriterHook",
    ),
    "outbox": ("Outbox",),
    "polling.manual": ("DrainResult",),
    "polling.poller": ("OutboxPoller",),
    "ports": ("EventStore", "TxContext"),
    "stores.detect": ("register_store",),
    "stores.scripts": ("schema_sql",),
    "writing.writer": ("OutboxWriter",),
}  # fmt: skip
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a checker that saw it would take every misspelt name for one that is there

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
