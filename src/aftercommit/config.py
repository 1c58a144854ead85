"""Every option with its default and its reason, read once into a frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from aftercommit.errors import InvalidOption
from aftercommit.events.context import ContextProvider, Providers
from aftercommit.events.durations import Duration, duration
from aftercommit.events.retry import RetryPolicy, default_policy
from aftercommit.events.serializers import Serializer
from aftercommit.hooks import EventInterceptor, InFlightTracker, ListenerRegistry, MetricsExporter, WriterHook


class Wiring(Enum):
    """The ready-made ways to put an outbox together."""

    CUSTOM = "Outbox"
    SINGLE_NODE = "single_node"
    MULTI_NODE = "multi_node"
    ORDERED = "ordered"
    WRITER_ONLY = "writer_only"


#: A third of the longest rolling deploy that one would call normal.
_MULTI_NODE_GRACE: Final = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxConfig:
    """The options of an outbox. Durations take a timedelta, seconds, or text such as "200ms", "5s", "1m"."""

    wiring: Wiring = Wiring.CUSTOM
    #: Events that are handled at the same time.
    worker_count: int = 4
    hot_queue_capacity: int = 1000
    cold_queue_capacity: int = 1000
    #: Failed attempts after which an event is dead; a policy may have its own limit.
    max_attempts: int = 10
    retry_policy: RetryPolicy = field(default_factory=default_policy)
    #: How long close() lets waiting events finish.
    drain_timeout: timedelta = timedelta(seconds=5)
    #: Deliver from memory after the commit.
    hot_path: bool = True
    #: Deliver what is found in the table.
    poller_enabled: bool = True
    poll_interval: timedelta = timedelta(seconds=5)
    #: The pause between two looks grows up to this while little is found; None: it is always poll_interval.
    max_poll_interval: timedelta | None = None
    batch_size: int = 50
    #: Rows younger than this are not polled.
    skip_recent: timedelta = timedelta(0)
    #: Long enough for a pause of the process, short enough that a dead one is noticed within a minute. It is renewed
    #: while an event waits or runs, so it does not limit handlers.
    lock_timeout: timedelta = timedelta(seconds=30)
    #: Deliveries that may end with the death of their process before the event is dead.
    max_abandoned: int = 5
    #: How long an event that nobody here can handle is left to others; None: for ever.
    unroutable_grace: timedelta | None = timedelta(0)
    #: Events of one key are handled in the order of writing, one at a time. The table keeps it: all processes agree.
    ordered: bool = False
    #: Whether a failed event holds back the later ones of its key until it is done or dead.
    stop_on_first_failure: bool = True
    #: What follows a dead event of a key: "block" until it is replayed or discarded, or "continue".
    on_dead: str = "block"
    #: Overlapping transactions that write the same key wait for each other, so that their events have an order, too.
    serialize_keys: bool = False
    #: Several beats fit into stale_timeout, so that one that is late costs nothing.
    heartbeat_interval: timedelta = timedelta(seconds=5)
    #: An instance that was not heard of for so long has left the fleet.
    stale_timeout: timedelta = timedelta(seconds=30)
    #: How often instances look whether each has its share of the partitions.
    rebalance_interval: timedelta = timedelta(seconds=10)
    #: Delete rows when they are done instead of keeping them.
    delete_completed: bool = False
    #: Age at which done rows are purged; None: never.
    purge_retention: timedelta | None = None
    #: Purge dead rows too.
    purge_dead: bool = False
    purge_interval: timedelta = timedelta(hours=1)
    purge_batch_size: int = 500
    table: str = "outbox_event"
    schema: str | None = None
    #: Create and upgrade the tables when first used; None: as the store does by default (SQLite: yes).
    create_schema: bool | None = None
    metrics: MetricsExporter = field(default_factory=MetricsExporter)
    interceptors: Sequence[EventInterceptor] = ()
    listener_registry: ListenerRegistry | None = None
    in_flight_tracker: InFlightTracker | None = None
    writer_hook: WriterHook | None = None
    #: Functions without arguments that return a mapping of strings, asked at every write().
    context_providers: Sequence[ContextProvider] = ()
    #: The format of payloads; of several the first one writes and all of them read. None: JSON.
    serializer: Serializer | Sequence[Serializer] | None = None
    #: Whether publish() writes objects of marked classes to the outbox, and passes them to subscribers as well.
    publish_enabled: bool = True
    publish_after_save: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _positive_int(getattr(self, name), name)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise InvalidOption(f"{name} is {getattr(self, name)!r}", fix=f"pass {name}=True or {name}=False")
        if self.create_schema is not None and not isinstance(self.create_schema, bool):
            raise InvalidOption(f"create_schema is {self.create_schema!r}", fix="pass True, False, or leave it out")
        for name, positive in _DURATIONS.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                object.__setattr__(self, name, duration(value, name=name, positive=positive))
        for name, kind in _KINDS.items():
            _check_kind(getattr(self, name), name, kind)
        _check_order(self)
        object.__setattr__(self, "interceptors", _interceptors(self.interceptors))
        object.__setattr__(self, "context_providers", _providers(self.context_providers))

    @property
    def delivers(self) -> bool:
        return self.wiring is not Wiring.WRITER_ONLY


_COUNTS: Final = (
    "worker_count",
    "hot_queue_capacity",
    "cold_queue_capacity",
    "max_attempts",
    "batch_size",
    "max_abandoned",
    "purge_batch_size",
)

_SWITCHES: Final = (
    "hot_path",
    "poller_enabled",
    "delete_completed",
    "purge_dead",
    "publish_enabled",
    "publish_after_save",
    "ordered",
    "stop_on_first_failure",
    "serialize_keys",
)

#: Whether zero is refused, too.
_DURATIONS: Final = {
    "drain_timeout": False,
    "poll_interval": True,
    "max_poll_interval": True,
    "skip_recent": False,
    "lock_timeout": True,
    "unroutable_grace": False,
    "heartbeat_interval": True,
    "stale_timeout": True,
    "rebalance_interval": True,
    "purge_retention": False,
    "purge_interval": True,
}

_MAY_BE_NONE: Final = frozenset({"unroutable_grace", "purge_retention", "max_poll_interval"})

_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "retry_policy": ("delay", "should_retry"),
    "metrics": ("record_queue_depths",),
    "listener_registry": ("listener_for",),
    "in_flight_tracker": ("try_acquire", "release"),
    "writer_hook": ("before_write", "after_commit"),
}

_DELIVERY: Final = frozenset(
    {
        "worker_count", "hot_queue_capacity", "cold_queue_capacity", "max_attempts", "retry_policy", "drain_timeout",
        "hot_path", "poller_enabled", "poll_interval", "batch_size", "skip_recent", "lock_timeout", "max_abandoned",
        "unroutable_grace", "delete_completed", "purge_dead", "interceptors", "listener_registry", "in_flight_tracker",
        "max_poll_interval", "stop_on_first_failure", "heartbeat_interval", "stale_timeout", "rebalance_interval",
    }
)  # fmt: skip

#: What makes no sense in a wiring, with the reason.
_REFUSED: Final[Mapping[Wiring, tuple[frozenset[str], str]]] = {
    Wiring.CUSTOM: (frozenset(), ""),
    Wiring.SINGLE_NODE: (
        frozenset({"hot_path", "poller_enabled"}),
        "a single node needs both the hot path and the poller",
    ),
    Wiring.MULTI_NODE: (frozenset({"poller_enabled"}), "without a poller no node would take over from another"),
    Wiring.ORDERED: (
        frozenset({"ordered", "poller_enabled", "skip_recent"}),
        "order is kept by claiming from the table, in order of position",
    ),
    Wiring.WRITER_ONLY: (_DELIVERY, "a writer-only outbox delivers nothing"),
}


def configure(wiring: Wiring, options: Mapping[str, Any], config: OutboxConfig | None = None) -> OutboxConfig:
    """The configuration from keywords, over a ready one if there is one. Wrong names and values are refused."""
    if config is not None and not isinstance(config, OutboxConfig):
        raise InvalidOption(f"config is {config!r}", fix="pass an OutboxConfig, or the options as keywords")
    known = {option.name for option in fields(OutboxConfig)} - {"wiring"}
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(sorted(known))}"
            raise InvalidOption(f"there is no option {name}={options[name]!r}", fix=hint)
    refused, reason = _REFUSED[wiring]
    for name in sorted(refused & options.keys()):
        raise InvalidOption(
            f"{name}={options[name]!r} makes no sense in {wiring.value}: {reason}", fix="leave it out, or use Outbox(…)"
        )
    base = {name: getattr(config, name) for name in known} if config is not None else {}
    defaults: dict[str, Any] = {}
    if wiring in (Wiring.MULTI_NODE, Wiring.ORDERED):
        defaults["unroutable_grace"] = _MULTI_NODE_GRACE
    if wiring is Wiring.ORDERED:
        defaults["ordered"] = True
    chosen = OutboxConfig(wiring=wiring, **{**defaults, **base, **options})
    if "purge_interval" in options and chosen.purge_retention is None:
        raise InvalidOption(
            f"purge_interval={options['purge_interval']!r} has no effect without purge_retention",
            fix='set purge_retention="7d" as well',
        )
    return chosen


#: What says how order is kept, and has no meaning without it.
_OF_ORDER: Final = ("stop_on_first_failure", "on_dead", "serialize_keys")


def _check_order(config: OutboxConfig) -> None:
    """What contradicts itself, or would be silently without effect."""
    if config.on_dead not in ("block", "continue"):
        raise InvalidOption(f"on_dead is {config.on_dead!r}", fix='pass "block" or "continue"')
    if not config.ordered:
        for name in _OF_ORDER:
            value = getattr(config, name)
            if value != OutboxConfig.__dataclass_fields__[name].default:
                raise InvalidOption(f"{name}={value!r} has no effect without order", fix="set ordered=True")
    elif config.skip_recent:
        raise InvalidOption(
            f"skip_recent={config.skip_recent} would hold up every key in an ordered outbox", fix="leave it out"
        )
    if config.stale_timeout < 2 * config.heartbeat_interval:
        raise InvalidOption(
            f"stale_timeout={config.stale_timeout} is less than two heartbeats of {config.heartbeat_interval}, so one "
            "that is late would cost an instance its partitions",
            fix="raise stale_timeout, or lower heartbeat_interval",
        )
    if config.max_poll_interval is not None and config.max_poll_interval < config.poll_interval:
        raise InvalidOption(
            f"max_poll_interval={config.max_poll_interval} is shorter than poll_interval={config.poll_interval}",
            fix="raise max_poll_interval, or leave it out for a fixed pause",
        )


def _positive_int(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name} is {value!r}", fix=f"pass {name} as an int of at least 1")


def _check_kind(value: object, name: str, methods: tuple[str, ...]) -> None:
    default = OutboxConfig.__dataclass_fields__[name].default
    if value is None and default is None:
        return
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing or isinstance(value, type):
        raise InvalidOption(
            f"{name} is {value!r}, which has no {', '.join(missing) or 'instance'}",
            fix=f"pass an object with {', '.join(methods)}",
        )


def _interceptors(value: Any) -> tuple[EventInterceptor, ...]:
    interceptors = tuple(value) if isinstance(value, Sequence) else (None,)
    for each in interceptors:
        if isinstance(each, type) or not (hasattr(each, "before_dispatch") and hasattr(each, "after_dispatch")):
            raise InvalidOption(f"interceptors is {value!r}", fix="pass a list of EventInterceptor objects")
    return interceptors


def _providers(value: Any) -> tuple[ContextProvider, ...]:
    if not isinstance(value, Sequence):
        raise InvalidOption(f"context_providers is {value!r}", fix="pass a list of functions without arguments")
    Providers(value)  # refuses what cannot be one
    return tuple(value)


__all__ = ["Duration", "OutboxConfig", "Wiring", "configure"]
