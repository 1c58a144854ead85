"""aftercommit: a transactional outbox. Write events in your transaction; they are delivered after the commit."""

from __future__ import annotations

from importlib import import_module

#: Type checkers read it as true. To take it from `typing` would cost more than all the rest of this import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from aftercommit.async_outbox import AsyncOutbox as AsyncOutbox
    from aftercommit.components.aio import AsyncOutboxDispatcher as AsyncOutboxDispatcher
    from aftercommit.components.aio import AsyncOutboxPoller as AsyncOutboxPoller
    from aftercommit.components.aio import AsyncOutboxWriter as AsyncOutboxWriter
    from aftercommit.components.connecting import ConnectionProvider as ConnectionProvider
    from aftercommit.components.dispatching import DispatcherCommitHook as DispatcherCommitHook
    from aftercommit.components.threads import OutboxDispatcher as OutboxDispatcher
    from aftercommit.components.threads import OutboxPoller as OutboxPoller
    from aftercommit.components.threads import OutboxWriter as OutboxWriter
    from aftercommit.config import OutboxConfig as OutboxConfig
    from aftercommit.config import OutboxOptions as OutboxOptions
    from aftercommit.engine import Stats as Stats
    from aftercommit.errors import AddressRefused as AddressRefused
    from aftercommit.errors import BrokenRelay as BrokenRelay
    from aftercommit.errors import CannotStart as CannotStart
    from aftercommit.errors import ColourMismatch as ColourMismatch
    from aftercommit.errors import DuplicateHandler as DuplicateHandler
    from aftercommit.errors import DuplicateListener as DuplicateListener
    from aftercommit.errors import HandlerTimeout as HandlerTimeout
    from aftercommit.errors import InvalidEvent as InvalidEvent
    from aftercommit.errors import InvalidHandler as InvalidHandler
    from aftercommit.errors import InvalidHeaders as InvalidHeaders
    from aftercommit.errors import InvalidListener as InvalidListener
    from aftercommit.errors import InvalidName as InvalidName
    from aftercommit.errors import InvalidOption as InvalidOption
    from aftercommit.errors import InvalidPayload as InvalidPayload
    from aftercommit.errors import InvalidPayloadType as InvalidPayloadType
    from aftercommit.errors import InvalidSchedule as InvalidSchedule
    from aftercommit.errors import MessageRefused as MessageRefused
    from aftercommit.errors import MissingDriver as MissingDriver
    from aftercommit.errors import NotAwaited as NotAwaited
    from aftercommit.errors import NotInTransaction as NotInTransaction
    from aftercommit.errors import OutboxError as OutboxError
    from aftercommit.errors import PayloadNotText as PayloadNotText
    from aftercommit.errors import PayloadTooLarge as PayloadTooLarge
    from aftercommit.errors import SchemaMismatch as SchemaMismatch
    from aftercommit.errors import SchemaMissing as SchemaMissing
    from aftercommit.errors import StoreBusy as StoreBusy
    from aftercommit.errors import StoreForbidden as StoreForbidden
    from aftercommit.errors import StoreFull as StoreFull
    from aftercommit.errors import StoreReadOnly as StoreReadOnly
    from aftercommit.errors import StoreUnavailable as StoreUnavailable
    from aftercommit.errors import TransactionEnded as TransactionEnded
    from aftercommit.errors import UndecodablePayload as UndecodablePayload
    from aftercommit.errors import UndecodableRow as UndecodableRow
    from aftercommit.errors import UnknownStore as UnknownStore
    from aftercommit.errors import UnroutableEvent as UnroutableEvent
    from aftercommit.errors import UnsupportedTransaction as UnsupportedTransaction
    from aftercommit.events.claims import Claimed as Claimed
    from aftercommit.events.claims import Lease as Lease
    from aftercommit.events.claims import PartitionHasher as PartitionHasher
    from aftercommit.events.classes import outbox_event as outbox_event
    from aftercommit.events.codec import JsonSerializer as JsonSerializer
    from aftercommit.events.codec import MsgpackSerializer as MsgpackSerializer
    from aftercommit.events.codec import Serializer as Serializer
    from aftercommit.events.context import ContextProvider as ContextProvider
    from aftercommit.events.context import EventMetadata as EventMetadata
    from aftercommit.events.context import FailureContext as FailureContext
    from aftercommit.events.context import StoredError as StoredError
    from aftercommit.events.context import current_context as current_context
    from aftercommit.events.envelope import EventEnvelope as EventEnvelope
    from aftercommit.events.envelope import EventStatus as EventStatus
    from aftercommit.events.findings import Finding as Finding
    from aftercommit.events.findings import Level as Level
    from aftercommit.events.headers import HeaderCodec as HeaderCodec
    from aftercommit.events.ids import EventId as EventId
    from aftercommit.events.measures import Delivered as Delivered
    from aftercommit.events.measures import TableState as TableState
    from aftercommit.events.names import AggregateType as AggregateType
    from aftercommit.events.names import EventType as EventType
    from aftercommit.events.names import StringAggregateType as StringAggregateType
    from aftercommit.events.names import StringEventType as StringEventType
    from aftercommit.events.order import BlockedKey as BlockedKey
    from aftercommit.events.order import Cluster as Cluster
    from aftercommit.events.order import ClusterMember as ClusterMember
    from aftercommit.events.order import ClusterStats as ClusterStats
    from aftercommit.events.order import PartitionStats as PartitionStats
    from aftercommit.events.outcome import BatchResult as BatchResult
    from aftercommit.events.outcome import DeadLetter as DeadLetter
    from aftercommit.events.outcome import Discard as Discard
    from aftercommit.events.outcome import DispatchResult as DispatchResult
    from aftercommit.events.outcome import Done as Done
    from aftercommit.events.outcome import RetryAfter as RetryAfter
    from aftercommit.events.outcome import RetryAfterError as RetryAfterError
    from aftercommit.events.outcome import Unavailable as Unavailable
    from aftercommit.events.outcome import WrongBatchResult as WrongBatchResult
    from aftercommit.events.pauses import Pause as Pause
    from aftercommit.events.pauses import PauseKind as PauseKind
    from aftercommit.events.queued import QueuedEvent as QueuedEvent
    from aftercommit.events.queued import Source as Source
    from aftercommit.events.records import DeadEvent as DeadEvent
    from aftercommit.events.records import EventRecord as EventRecord
    from aftercommit.events.records import Failure as Failure
    from aftercommit.events.records import Summary as Summary
    from aftercommit.events.records import TypeSummary as TypeSummary
    from aftercommit.events.retry import Exponential as Exponential
    from aftercommit.events.retry import ExponentialJitter as ExponentialJitter
    from aftercommit.events.retry import Fixed as Fixed
    from aftercommit.events.retry import Jittered as Jittered
    from aftercommit.events.retry import Linear as Linear
    from aftercommit.events.retry import NoRetry as NoRetry
    from aftercommit.events.retry import RetryPolicy as RetryPolicy
    from aftercommit.handlers.handler import Handler as Handler
    from aftercommit.handlers.listeners import DefaultListenerRegistry as DefaultListenerRegistry
    from aftercommit.handlers.listeners import MultiListenerRegistry as MultiListenerRegistry
    from aftercommit.handlers.objects import OutboxFallbackHandler as OutboxFallbackHandler
    from aftercommit.handlers.objects import OutboxHandler as OutboxHandler
    from aftercommit.handlers.objects import OutboxTypedHandler as OutboxTypedHandler
    from aftercommit.handlers.options import any_event as any_event
    from aftercommit.handlers.set import HandlerSet as HandlerSet
    from aftercommit.health import Health as Health
    from aftercommit.hooks import AfterCommitHook as AfterCommitHook
    from aftercommit.hooks import EventInterceptor as EventInterceptor
    from aftercommit.hooks import EventListener as EventListener
    from aftercommit.hooks import InFlightTracker as InFlightTracker
    from aftercommit.hooks import ListenerRegistry as ListenerRegistry
    from aftercommit.hooks import MetricsExporter as MetricsExporter
    from aftercommit.hooks import OutboxPollerHandler as OutboxPollerHandler
    from aftercommit.hooks import PollResult as PollResult
    from aftercommit.hooks import PollTrigger as PollTrigger
    from aftercommit.hooks import Tracing as Tracing
    from aftercommit.hooks import WriterHook as WriterHook
    from aftercommit.observers.otel import OtelMetrics as OtelMetrics
    from aftercommit.observers.prometheus import PrometheusMetrics as PrometheusMetrics
    from aftercommit.observers.tracing import OtelTracing as OtelTracing
    from aftercommit.outbox import Outbox as Outbox
    from aftercommit.polling.manual import DrainResult as DrainResult
    from aftercommit.ports import EventStore as EventStore
    from aftercommit.ports import SchemaStatus as SchemaStatus
    from aftercommit.ports import TxContext as TxContext
    from aftercommit.runtime.in_flight import DefaultInFlightTracker as DefaultInFlightTracker
    from aftercommit.stores.detect import register_store as register_store
    from aftercommit.stores.scripts import schema_sql as schema_sql

__version__ = "0.1.0"

#: Where each name is at home. A program loads what it uses when it uses it: the first look at a name loads its module.
_HOMES = {
    "async_outbox": ("AsyncOutbox",),
    "components.aio": ("AsyncOutboxDispatcher", "AsyncOutboxPoller", "AsyncOutboxWriter"),
    "components.connecting": ("ConnectionProvider",),
    "components.dispatching": ("DispatcherCommitHook",),
    "components.threads": ("OutboxDispatcher", "OutboxPoller", "OutboxWriter"),
    "config": ("OutboxConfig", "OutboxOptions"),
    "engine": ("Stats",),
    "errors": (
        "AddressRefused", "BrokenRelay", "MessageRefused",
        "CannotStart", "ColourMismatch", "DuplicateHandler", "DuplicateListener", "HandlerTimeout", "InvalidEvent",
        "InvalidHandler", "InvalidHeaders", "InvalidListener", "InvalidName", "InvalidOption", "InvalidPayload",
        "InvalidPayloadType", "InvalidSchedule", "MissingDriver", "NotAwaited", "NotInTransaction", "OutboxError",
        "PayloadNotText", "PayloadTooLarge", "SchemaMismatch", "SchemaMissing", "StoreBusy", "StoreForbidden",
        "StoreFull", "StoreReadOnly", "StoreUnavailable", "TransactionEnded", "UndecodablePayload", "UndecodableRow",
        "UnknownStore", "UnroutableEvent", "UnsupportedTransaction",
    ),
    "events.claims": ("Claimed", "Lease", "PartitionHasher"),
    "events.classes": ("outbox_event",),
    "events.codec": ("JsonSerializer", "MsgpackSerializer", "Serializer"),
    "events.context": ("ContextProvider", "EventMetadata", "FailureContext", "StoredError", "current_context"),
    "events.envelope": ("EventEnvelope", "EventStatus"),
    "events.findings": ("Finding", "Level"),
    "events.headers": ("HeaderCodec",),
    "events.ids": ("EventId",),
    "events.measures": ("Delivered", "TableState"),
    "events.names": ("AggregateType", "EventType", "StringAggregateType", "StringEventType"),
    "events.order": ("BlockedKey", "Cluster", "ClusterMember", "ClusterStats", "PartitionStats"),
    "events.outcome": (
        "BatchResult", "DeadLetter", "Discard", "DispatchResult", "Done", "RetryAfter", "RetryAfterError",
        "Unavailable", "WrongBatchResult",
    ),
    "events.pauses": ("Pause", "PauseKind"),
    "events.queued": ("QueuedEvent", "Source"),
    "events.records": ("DeadEvent", "EventRecord", "Failure", "Summary", "TypeSummary"),
    "events.retry": ("Exponential", "ExponentialJitter", "Fixed", "Jittered", "Linear", "NoRetry", "RetryPolicy"),
    "handlers.handler": ("Handler",),
    "handlers.listeners": ("DefaultListenerRegistry", "MultiListenerRegistry"),
    "handlers.objects": ("OutboxFallbackHandler", "OutboxHandler", "OutboxTypedHandler"),
    "handlers.options": ("any_event",),
    "handlers.set": ("HandlerSet",),
    "health": ("Health",),
    "hooks": (
        "AfterCommitHook", "EventInterceptor", "EventListener", "InFlightTracker", "ListenerRegistry",
        "MetricsExporter", "OutboxPollerHandler", "PollResult", "PollTrigger", "Tracing", "WriterHook",
    ),
    "observers.otel": ("OtelMetrics",),
    "observers.prometheus": ("PrometheusMetrics",),
    "observers.tracing": ("OtelTracing",),
    "outbox": ("Outbox",),
    "polling.manual": ("DrainResult",),
    "ports": ("EventStore", "SchemaStatus", "TxContext"),
    "runtime.in_flight": ("DefaultInFlightTracker",),
    "stores.detect": ("register_store",),
    "stores.scripts": ("schema_sql",),
}  # fmt: skip
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a checker that saw __getattr__ would take every misspelt name for one that is there
    __all__ = list(_HOME_OF)

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
