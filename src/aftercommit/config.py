"""Every option, said once; read once into a frozen value. The table of `docs/options.md` is made from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from aftercommit.errors import InvalidOption, did_you_mean
from aftercommit.events.codec import Serializer
from aftercommit.events.context import ContextProvider
from aftercommit.events.durations import Duration
from aftercommit.events.headers import HeaderCodec
from aftercommit.events.retry import DEFAULT_POLICY, RetryPolicy
from aftercommit.events.retry_settings import Retry
from aftercommit.hooks import (
    EventInterceptor,
    InFlightTracker,
    ListenerRegistry,
    MetricsExporter,
    PollTrigger,
    Tracing,
    WriterHook,
)
from aftercommit.options import (
    ABOVE_ZERO,
    COUNT,
    DURATION,
    FUNCTION,
    INTERCEPTORS,
    NAME,
    OWNER,
    POLICY,
    PROVIDERS,
    REASONS,
    SERIALIZERS,
    SLOT,
    SWITCH,
    SWITCH_OR_NONE,
    Of,
    Option,
    Wiring,
    choice,
    having,
    or_none,
)
from aftercommit.options import option as _option


class OutboxOptions(TypedDict, total=False):
    """The keywords of an outbox, for type checkers: what each option takes. `OutboxConfig` says what they mean."""

    worker_count: int
    hot_queue_capacity: int
    cold_queue_capacity: int
    max_attempts: int
    retry_policy: Retry
    drain_timeout: Duration
    hot_path: bool
    poller_enabled: bool
    poll_interval: Duration
    max_poll_interval: Duration | None
    poll_trigger: PollTrigger | None
    wakeups: bool
    batch_size: int
    skip_recent: Duration
    lease_ahead: bool
    lock_timeout: Duration
    max_abandoned: int
    owner_id: str | None
    unroutable_grace: Duration | None
    ordered: bool
    stop_on_first_failure: bool
    on_dead: str
    serialize_keys: bool
    heartbeat_interval: Duration
    stale_timeout: Duration
    rebalance_interval: Duration
    delete_completed: bool | None
    purge_retention: Duration | None
    purge_dead: bool
    purge_interval: Duration
    purge_batch_size: int
    table: str
    schema: str | None
    create_schema: bool | None
    replication: str | None
    metrics: MetricsExporter
    tracing: Tracing | None
    interceptors: Sequence[EventInterceptor]
    listener_registry: ListenerRegistry | None
    in_flight_tracker: InFlightTracker | None
    writer_hook: WriterHook | None
    context_providers: Sequence[ContextProvider]
    serializer: Serializer | Sequence[Serializer] | None
    header_codec: HeaderCodec | None
    publish_enabled: bool
    publish_after_save: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxConfig:
    """The options of an outbox. Durations take a timedelta, seconds, or text such as "200ms", "5s", "1m"."""

    # fmt: off
    wiring: Wiring = Wiring.CUSTOM
    worker_count: int = _option(4, COUNT, Of.DELIVERY, "events that are handled at the same time")
    hot_queue_capacity: int = _option(1000, COUNT, Of.DELIVERY,
        "events from commits that may wait in memory; more are left to the poller, counted as `hot_dropped`")
    cold_queue_capacity: int = _option(1000, COUNT, Of.DELIVERY, "events from the table that may wait in memory")
    max_attempts: int = _option(10, COUNT, Of.DELIVERY,
        "failed attempts after which an event is DEAD; a retry policy may have its own limit")
    retry_policy: RetryPolicy = _option(DEFAULT_POLICY, POLICY, Of.DELIVERY,
        "when to try again: after 200 ms, doubled each time, at most 60 s, times 0.5 to 1.5 at random. "
        "Others: `Exponential`, `Fixed`, `Linear`, `Jittered`, `NoRetry`, or one of your own; "
        "[by name](handlers.md#policies) for configuration",
        shown="`ExponentialJitter()`")
    drain_timeout: timedelta = _option(timedelta(seconds=5), DURATION, Of.DELIVERY,
        "how long `close()` lets waiting events finish")
    hot_path: bool = _option(True, SWITCH, Of.DELIVERY,
        "deliver from memory after the commit", refused_by=(Wiring.SINGLE_NODE,))
    poller_enabled: bool = _option(True, SWITCH, Of.DELIVERY,
        "deliver what is found in the table", refused_by=(Wiring.SINGLE_NODE, Wiring.MULTI_NODE, Wiring.ORDERED))
    poll_interval: timedelta = _option(timedelta(seconds=5), ABOVE_ZERO, Of.DELIVERY,
        "the longest sleep of the poller; it wakes earlier for retries that fall due, commits it was told of, "
        "and free room")
    max_poll_interval: timedelta | None = _option(None, or_none(ABOVE_ZERO), Of.DELIVERY,
        "the sleep is doubled after each look that found no more than a quarter of a batch, up to this; "
        "`None`: it is always `poll_interval`")
    poll_trigger: PollTrigger | None = _option(None, or_none(FUNCTION), Of.DELIVERY,
        "a schedule of your own: called after each poll with a `PollResult` (`count` of rows, and the `interval` that "
        "the outbox would take), it gives the time until the next one, 1 ms to a day. When it raises, the outbox's own "
        "is used. As with `poll_interval`, the poller wakes earlier for what it knows of")
    wakeups: bool = _option(True, SWITCH, Of.WRITING,
        "tell other processes at once of rows that are left to them, and listen for it, where the store can "
        "(PostgreSQL, over a connection more). Elsewhere the poller looks more often while it finds something")
    batch_size: int = _option(50, COUNT, Of.DELIVERY,
        "rows of one claim. While claims come back full it is doubled, up to `cold_queue_capacity`")
    skip_recent: timedelta = _option(timedelta(0), DURATION, Of.DELIVERY,
        "leave rows alone that are younger than this", refused_by=(Wiring.ORDERED,))
    lease_ahead: bool = _option(True, SWITCH, Of.DELIVERY,
        "let the poller lease rows that wait for a worker, a batch at a time. `False`: only when one is there to start "
        "them, and [all that waits is anybody's](#leasing-ahead)", refused_by=(Wiring.ORDERED,))
    #: Long enough for a pause of the process, short enough that a dead one is noticed within a minute.
    lock_timeout: timedelta = _option(timedelta(seconds=30), ABOVE_ZERO, Of.DELIVERY,
        "length of a lease. It is renewed while an event waits or runs, so it does not limit handlers; "
        "it is how long the events of a dead process wait")
    max_abandoned: int = _option(5, COUNT, Of.DELIVERY,
        "deliveries that may end with the death of their process before the event is DEAD")
    owner_id: str | None = _option(None, or_none(OWNER), Of.DELIVERY,
        "a name for the leases of this program, as `locked_by` and `cluster()` show it. A uuid of each start is added "
        "(`billing-1/0b5e…`), so that two processes of one name are never taken for each other; `None`: the uuid alone")
    #: A third of the longest rolling deploy that one would call normal: old processes meet the events of new ones.
    unroutable_grace: timedelta | None = _option(timedelta(minutes=10), or_none(DURATION), Of.DELIVERY,
        "how long an event that no listener here matches is left to other processes; "
        "`None`: for ever; 0: DEAD at once", default_in={Wiring.SINGLE_NODE: timedelta(0)})
    ordered: bool = _option(False, SWITCH, Of.WRITING,
        "events of one key in the order of writing, one at a time: [order](order.md). "
        "The table remembers it, and a process that disagrees refuses to start",
        refused_by=(Wiring.ORDERED,), default_in={Wiring.ORDERED: True})
    stop_on_first_failure: bool = _option(True, SWITCH, Of.DELIVERY | Of.ORDER,
        "a failed event holds back the later ones of its key until it is done or dead; `False`: they pass it")
    on_dead: str = _option("block", choice("block", "continue"), Of.ORDER,
        "what follows a dead event of a key: nothing until it is replayed or discarded, or, with `\"continue\"`, "
        "the next one")
    serialize_keys: bool = _option(False, SWITCH, Of.ORDER,
        "transactions that write the same key wait for each other, so that overlapping ones have an order too "
        "(PostgreSQL)")
    #: Several beats fit into stale_timeout, so that one that is late costs nothing.
    heartbeat_interval: timedelta = _option(timedelta(seconds=5), ABOVE_ZERO, Of.DELIVERY,
        "how often an instance of an ordered fleet says that it lives")
    stale_timeout: timedelta = _option(timedelta(seconds=30), ABOVE_ZERO, Of.DELIVERY,
        "silence after which an instance has left the fleet; at least two heartbeats")
    rebalance_interval: timedelta = _option(timedelta(seconds=10), ABOVE_ZERO, Of.DELIVERY,
        "how often instances look whether each has its share of the partitions")
    delete_completed: bool | None = _option(None, SWITCH_OR_NONE, Of.DELIVERY,
        "delete rows when they are done. `None`: as the store does by default",
        shown="`None` (Redis: `True`)")
    purge_retention: timedelta | None = _option(None, or_none(DURATION), Of.WRITING,
        "purge done rows older than this; `None`: never. In `writer_only`: all rows, by age")
    purge_dead: bool = _option(False, SWITCH, Of.DELIVERY, "purge dead rows too")
    purge_interval: timedelta = _option(timedelta(hours=1), ABOVE_ZERO, Of.WRITING,
        "time between two purges; refused without `purge_retention`")
    purge_batch_size: int = _option(500, COUNT, Of.WRITING, "rows of one DELETE")
    table: str = _option("outbox_event", NAME, Of.WRITING,
        "the table of events; side tables take their names from it")
    schema: str | None = _option(None, or_none(NAME), Of.WRITING,
        "a database schema; SQLite has none and refuses it")
    create_schema: bool | None = _option(None, SWITCH_OR_NONE, Of.WRITING,
        "create and upgrade the tables on first use; else call `outbox.create_schema()`. "
        "`None`: as the store does by default", shown="`None` (SQLite: `True`)")
    replication: str | None = _option(None, or_none(SLOT), Of.WRITING,
        "the replication slot from which a `ReplicationTail` or Debezium reads what is written (PostgreSQL): "
        "`create_schema()` makes it, and `health()` watches over it. [Reading the log](replication.md)")
    metrics: MetricsExporter = _option(MetricsExporter.NOOP,
        having("a `MetricsExporter`", "record_queue_depths"), Of.WRITING,
        "takes the counters and gauges: [monitoring](monitoring.md#metrics)", shown="`MetricsExporter.NOOP`")
    tracing: Tracing | None = _option(None,
        or_none(having("a `Tracing`, such as `OtelTracing()`", "writing", "delivering", "settling")), Of.WRITING,
        "spans around writing, delivering and settling: [tracing](tracing.md)")
    interceptors: Sequence[EventInterceptor] = _option((), INTERCEPTORS, Of.DELIVERY,
        "called before and after every delivery", shown="none")
    listener_registry: ListenerRegistry | None = _option(None,
        or_none(having("a `ListenerRegistry`", "listener_for")), Of.DELIVERY,
        "who gets what; `MultiListenerRegistry` allows several listeners and wildcards",
        shown="`DefaultListenerRegistry()`")
    in_flight_tracker: InFlightTracker | None = _option(None,
        or_none(having("an `InFlightTracker`", "try_acquire", "release")), Of.DELIVERY,
        "one of your own, asked before every delivery; the outbox holds one copy of each row without it")
    writer_hook: WriterHook | None = _option(None,
        or_none(having("a `WriterHook`", "before_write", "after_commit")), Of.WRITING,
        "called before and after the INSERT, after commit and rollback")
    context_providers: Sequence[ContextProvider] = _option((), PROVIDERS, Of.WRITING,
        "functions without arguments that return a mapping of strings, asked at every `write()`; "
        "see [payloads](payloads.md)", shown="none")
    serializer: Serializer | Sequence[Serializer] | None = _option(None, or_none(SERIALIZERS), Of.WRITING,
        "the format of payloads; of a list the first one writes and all of them read", shown="JSON")
    header_codec: HeaderCodec | None = _option(None,
        or_none(having("an object with `encode(headers)` and `decode(text)`", "encode", "decode")), Of.WRITING,
        "the text of the headers column, where other programs read or write it (not on Redis). All processes of a "
        "table need the same one: a row whose headers it cannot read is DEAD", shown="JSON")
    publish_enabled: bool = _option(True, SWITCH, Of.WRITING,
        "`publish()` writes objects of classes with `@outbox_event`; `False`: it only passes them to subscribers")
    publish_after_save: bool = _option(True, SWITCH, Of.WRITING,
        "`publish()` passes what it has written to subscribers as well")
    # fmt: on

    if TYPE_CHECKING:  # what it is given is more than what it keeps

        def __init__(self, *, wiring: Wiring = Wiring.CUSTOM, **options: Unpack[OutboxOptions]) -> None: ...

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            object.__setattr__(self, name, option.kind.check(name, getattr(self, name)))
        _check_order(self)

    @property
    def delivers(self) -> bool:
        return self.wiring is not Wiring.WRITER_ONLY

    @property
    def store_options(self) -> dict[str, Any]:
        """What its store is made with; only what was asked for of what some stores do not know."""
        asked: dict[str, Any] = {"ordered": True, "on_dead": self.on_dead} if self.ordered else {}
        if self.serialize_keys:
            asked["serialize_keys"] = True
        for name in ("header_codec", "create_schema", "delete_completed", "replication"):
            if (given := getattr(self, name)) is not None:
                asked[name] = given
        return {"table": self.table, "schema": self.schema, **asked}


#: What is to be said of each option, in the order of their declaration.
OPTIONS: Final[Mapping[str, Option]] = {
    each.name: each.metadata["option"] for each in fields(OutboxConfig) if each.name != "wiring"
}


def configure(wiring: Wiring, options: Mapping[str, Any], config: OutboxConfig | None = None) -> OutboxConfig:
    """The configuration from keywords, over a ready one if there is one. Wrong names and values are refused."""
    if config is not None and not isinstance(config, OutboxConfig):
        raise InvalidOption(f"config is {config!r}", fix="pass an OutboxConfig, or the options as keywords")
    for name, value in options.items():
        if name not in OPTIONS:
            raise InvalidOption(f"there is no option {name}={value!r}", fix=did_you_mean(name, OPTIONS))
    for name, value in sorted(options.items()):
        if OPTIONS[name].is_refused_by(wiring):
            raise InvalidOption(
                f"{name}={value!r} makes no sense in {wiring.value}: {REASONS[wiring]}",
                fix="leave it out, or use Outbox(…)",
            )
    defaults = {name: option.default_in[wiring] for name, option in OPTIONS.items() if wiring in option.default_in}
    base = {name: getattr(config, name) for name in OPTIONS} if config is not None else {}
    chosen = OutboxConfig(wiring=wiring, **{**defaults, **base, **options})
    if "purge_interval" in options and chosen.purge_retention is None:
        raise InvalidOption(
            f"purge_interval={options['purge_interval']!r} has no effect without purge_retention",
            fix='set purge_retention="7d" as well',
        )
    return chosen


def _check_order(config: OutboxConfig) -> None:
    """What contradicts itself, or would be silently without effect."""
    if not config.ordered:
        for name, option in OPTIONS.items():
            value = getattr(config, name)
            if Of.ORDER in option.of and value != OutboxConfig.__dataclass_fields__[name].default:
                raise InvalidOption(f"{name}={value!r} has no effect without order", fix="set ordered=True")
    elif config.skip_recent:
        raise InvalidOption(
            f"skip_recent={config.skip_recent} would hold up every key in an ordered outbox", fix="leave it out"
        )
    elif not config.lease_ahead:
        raise InvalidOption("lease_ahead=False: an ordered outbox leases a key's events together", fix="leave it out")
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
