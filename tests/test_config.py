"""Options: every default, every wrong value refused by name, every wiring with what makes no sense in it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from aftercommit import (
    AsyncOutbox,
    EventInterceptor,
    ExponentialJitter,
    Fixed,
    InvalidOption,
    MetricsExporter,
    MultiListenerRegistry,
    Outbox,
    OutboxConfig,
    OutboxOptions,
    RetryPolicy,
    WriterHook,
)
from aftercommit.config import OPTIONS
from aftercommit.events.durations import Duration
from aftercommit.events.retry_settings import Retry
from aftercommit.options import REASONS, Option, Wiring

DEFAULTS: dict[str, Any] = {
    "worker_count": 4,
    "hot_queue_capacity": 1000,
    "cold_queue_capacity": 1000,
    "max_attempts": 10,
    "drain_timeout": timedelta(seconds=5),
    "hot_path": True,
    "poller_enabled": True,
    "poll_interval": timedelta(seconds=5),
    "max_poll_interval": None,
    "poll_trigger": None,
    "wakeups": True,
    "batch_size": 50,
    "skip_recent": timedelta(0),
    "lease_ahead": True,
    "lock_timeout": timedelta(seconds=30),
    "max_abandoned": 5,
    "owner_id": None,
    "unroutable_grace": timedelta(minutes=10),
    "ordered": False,
    "stop_on_first_failure": True,
    "on_dead": "block",
    "serialize_keys": False,
    "heartbeat_interval": timedelta(seconds=5),
    "stale_timeout": timedelta(seconds=30),
    "rebalance_interval": timedelta(seconds=10),
    "delete_completed": None,
    "purge_retention": None,
    "purge_dead": False,
    "purge_interval": timedelta(hours=1),
    "purge_batch_size": 500,
    "table": "outbox_event",
    "schema": None,
    "create_schema": None,
    "replication": None,
    "tracing": None,
    "interceptors": (),
    "listener_registry": None,
    "in_flight_tracker": None,
    "writer_hook": None,
    "context_providers": (),
    "serializer": None,
    "header_codec": None,
    "publish_enabled": True,
    "publish_after_save": True,
}


@pytest.fixture(params=[Outbox, AsyncOutbox])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


# ---------------------------------------------------------------- defaults


def test_every_default_is_the_documented_one() -> None:
    """TC-249, C16; where the documents differ, the design's section 6."""
    config = OutboxConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS


def test_no_option_is_left_out_of_this_list() -> None:
    names = {field.name for field in dataclasses.fields(OutboxConfig)}
    assert names == {*DEFAULTS, "retry_policy", "metrics", "wiring"}


def test_the_default_policy_is_the_specifications() -> None:
    policy = OutboxConfig().retry_policy
    assert isinstance(policy, ExponentialJitter)
    assert (policy.base, policy.maximum, policy.max_attempts) == (
        timedelta(milliseconds=200),
        timedelta(seconds=60),
        None,
    )


def test_the_default_exporter_does_nothing() -> None:
    assert type(OutboxConfig().metrics) is MetricsExporter


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        OutboxConfig().worker_count = 9  # type: ignore[misc]


# ---------------------------------------------------------------- values


COUNTS = (
    "worker_count",
    "hot_queue_capacity",
    "cold_queue_capacity",
    "max_attempts",
    "batch_size",
    "max_abandoned",
    "purge_batch_size",
)


@pytest.mark.parametrize("option", COUNTS)
@pytest.mark.parametrize("wrong", [0, -1, 1.0, "4", None, True])
def test_a_count_is_a_positive_int(option: str, wrong: Any) -> None:
    """TC-120, TC-179, TC-208"""
    with pytest.raises(InvalidOption, match=option) as caught:
        Outbox("sqlite://", **{option: wrong})
    assert repr(wrong) in caught.value.message
    assert getattr(OutboxConfig(**{option: 7}), option) == 7


@pytest.mark.parametrize("option", ["hot_path", "poller_enabled", "purge_dead", "ordered"])
@pytest.mark.parametrize("wrong", [0, 1, "no", None])
def test_a_switch_is_true_or_false(option: str, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=option):
        OutboxConfig(**{option: wrong})


DURATIONS = {
    "drain_timeout": True,
    "poll_interval": False,
    "skip_recent": True,
    "lock_timeout": False,
    "unroutable_grace": True,
    "purge_retention": True,
    "purge_interval": False,
}


@pytest.mark.parametrize("option", DURATIONS)
@pytest.mark.parametrize("wrong", ["soon", "5 parsecs", -1, "-1s", timedelta(seconds=-1), True, float("nan"), [5]])
def test_a_duration_is_a_duration(option: str, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=option):
        OutboxConfig(**{option: wrong})


@pytest.mark.parametrize("option", DURATIONS)
@pytest.mark.parametrize("value", [2, 2.0, "2s", "2000ms", timedelta(seconds=2)])
def test_a_duration_may_be_said_in_every_way(option: str, value: Any) -> None:
    assert getattr(OutboxConfig(**{option: value}), option) == timedelta(seconds=2)


@pytest.mark.parametrize(("option", "may_be_zero"), DURATIONS.items())
def test_zero_is_refused_where_it_means_nothing(option: str, may_be_zero: bool) -> None:
    if may_be_zero:
        assert getattr(OutboxConfig(**{option: 0}), option) == timedelta(0)
    else:
        with pytest.raises(InvalidOption, match=option):
            OutboxConfig(**{option: 0})


@pytest.mark.parametrize("option", DURATIONS)
def test_none_is_for_ever_or_never_and_else_refused(option: str) -> None:
    if option in ("unroutable_grace", "purge_retention"):
        assert getattr(OutboxConfig(**{option: None}), option) is None
    else:
        with pytest.raises(InvalidOption, match=option):
            OutboxConfig(**{option: None})


class Half:
    """Has some of the methods that are asked for."""

    def delay(self, attempts: int) -> timedelta:
        return timedelta(0)

    def try_acquire(self, event_id: str) -> bool:
        return True

    def before_write(self, events: Any) -> Any:
        return events


@pytest.mark.parametrize("option", ["retry_policy", "metrics", "listener_registry", "in_flight_tracker", "writer_hook"])
@pytest.mark.parametrize("wrong", [3, "text", Half(), object()], ids=["int", "str", "half", "object"])
def test_a_part_has_its_methods(option: str, wrong: Any) -> None:
    """TC-119"""
    with pytest.raises(InvalidOption, match=option):
        OutboxConfig(**{option: wrong})


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("retry_policy", Fixed),
        ("metrics", MetricsExporter),
        ("listener_registry", MultiListenerRegistry),
        ("writer_hook", WriterHook),
    ],
)
def test_a_class_is_not_an_object_of_it(option: str, wrong: type) -> None:
    with pytest.raises(InvalidOption, match=option):
        OutboxConfig(**{option: wrong})


@pytest.mark.parametrize("option", ["retry_policy", "metrics"])
def test_a_part_with_a_default_cannot_be_none(option: str) -> None:
    """TC-119, TC-160: nothing to leave out here; leaving the option out is enough."""
    with pytest.raises(InvalidOption, match=option):
        OutboxConfig(**{option: None})


@pytest.mark.parametrize("wrong", [None, 3, "interceptors", [None], [EventInterceptor(), 3], {EventInterceptor()}])
def test_interceptors_are_a_list_of_them(wrong: Any) -> None:
    """TC-121"""
    with pytest.raises(InvalidOption, match="interceptors"):
        OutboxConfig(interceptors=wrong)


def test_interceptors_are_kept_in_order_and_cannot_change() -> None:
    first, second = EventInterceptor(), EventInterceptor()
    given = [first, second]
    config = OutboxConfig(interceptors=given)
    given.clear()
    assert config.interceptors == (first, second)


class OnlyBefore:
    def before_dispatch(self, event: Any) -> None: ...


@pytest.mark.parametrize("wrong", [[EventInterceptor], [OnlyBefore()]], ids=["a class", "half of one"])
def test_an_interceptor_is_an_object_with_both_methods(wrong: Any) -> None:
    """Else it would fail at the first event, after the handler has run."""
    with pytest.raises(InvalidOption, match="interceptors"):
        OutboxConfig(interceptors=wrong)


@pytest.mark.parametrize("wrong", ["yes", 1, 0])
def test_create_schema_is_true_false_or_left_to_the_store(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="create_schema"):
        OutboxConfig(create_schema=wrong)


@pytest.mark.parametrize("wrong", ["", "a b", "a/b", "-a", ".a", "é", "a\n", "x" * 65, 3, b"a", True])
def test_an_owner_id_is_short_and_plain(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="owner_id"):
        kind("sqlite://", owner_id=wrong)


@pytest.mark.parametrize("chosen", ["poller-1", "7", "shop@web-3.example:8080_b", "x" * 64])
def test_an_owner_id_may_be_a_name_of_a_host_or_pod(kind: Any, chosen: str) -> None:
    assert kind("sqlite://", owner_id=chosen).config.owner_id == chosen


@pytest.mark.parametrize("wrong", ["", "outbox event", "outbox;", "1outbox", "é", 3, None, 'o"x'])
def test_a_table_is_a_plain_name(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="table"):
        kind("sqlite://", table=wrong)


def test_sqlite_has_no_schemas(kind: Any) -> None:
    with pytest.raises(InvalidOption, match="schema"):
        kind("sqlite://", schema="app")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("workers_count", "worker_count"),
        ("poll_intervall", "poll_interval"),
        ("lock_time", "lock_timeout"),
        ("interceptor", "interceptors"),
        ("retry_polcy", "retry_policy"),
    ],
)
def test_an_unknown_option_says_which_one_was_meant(kind: Any, wrong: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"no option {wrong}") as caught:
        kind("sqlite://", **{wrong: 5})
    assert caught.value.fix == f"did you mean {meant}?"


def test_an_option_that_is_like_no_other_gets_the_whole_list(kind: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        kind("sqlite://", zzz=1)
    assert all(name in caught.value.fix for name in DEFAULTS)


def test_wiring_is_chosen_by_the_constructor_and_is_no_option(kind: Any) -> None:
    with pytest.raises(InvalidOption, match="wiring"):
        kind("sqlite://", wiring="writer_only")


def test_keywords_go_over_a_ready_configuration(kind: Any) -> None:
    ready = OutboxConfig(worker_count=2, batch_size=9)
    outbox = kind("sqlite://", config=ready, batch_size=3)
    assert (outbox.config.worker_count, outbox.config.batch_size) == (2, 3)
    assert ready.batch_size == 9


@pytest.mark.parametrize("wiring", Wiring)
def test_a_wiring_that_refuses_something_says_why(wiring: Wiring) -> None:
    refuses = any(option.is_refused_by(wiring) for option in OPTIONS.values())
    assert refuses == (wiring in REASONS)


@pytest.mark.parametrize(("name", "option"), OPTIONS.items())
def test_every_default_is_a_value_that_the_option_takes(name: str, option: Option) -> None:
    for value in (getattr(OutboxConfig(), name), *option.default_in.values()):
        assert option.kind.check(name, value) == value


def test_what_settings_name_by_a_path_is_every_option_that_is_an_object() -> None:
    assert {name for name, option in OPTIONS.items() if option.kind.is_object} == {
        *("context_providers", "header_codec", "in_flight_tracker", "interceptors", "listener_registry", "metrics"),
        *("poll_trigger", "retry_policy", "serializer", "tracing", "writer_hook"),
    }


@pytest.mark.parametrize("wrong", [{"worker_count": 2}, 3, "config"])
def test_a_configuration_is_an_outbox_config(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="config"):
        kind("sqlite://", config=wrong)


# ---------------------------------------------------------------- wirings


@pytest.mark.parametrize("option", ["hot_path", "poller_enabled"])
def test_a_single_node_needs_both_ways(kind: Any, option: str) -> None:
    """TC-192, C15"""
    with pytest.raises(InvalidOption, match=rf"{option}=False makes no sense in single_node"):
        kind.single_node("sqlite://", **{option: False})


def test_many_nodes_need_a_poller(kind: Any) -> None:
    """TC-192"""
    with pytest.raises(InvalidOption, match="poller_enabled=False makes no sense in multi_node"):
        kind.multi_node("sqlite://", poller_enabled=False)


def test_the_keywords_for_type_checkers_are_the_options() -> None:
    """In the same order, each with the type of what is kept; durations and policies may be given in any form."""
    kept = get_type_hints(OutboxConfig)
    del kept["wiring"]
    given = {timedelta: Duration, timedelta | None: Duration | None, RetryPolicy: Retry}
    assert list(OutboxOptions.__annotations__) == list(OPTIONS)
    assert get_type_hints(OutboxOptions) == {name: given.get(hint, hint) for name, hint in kept.items()}
    assert not OutboxOptions.__required_keys__


def test_only_a_single_node_does_not_leave_the_unroutable_to_others(kind: Any) -> None:
    for make in (kind, kind.multi_node, kind.ordered):
        assert make("sqlite://").config.unroutable_grace == timedelta(minutes=10)
    assert kind.multi_node("sqlite://", unroutable_grace=None).config.unroutable_grace is None
    assert kind.multi_node("sqlite://", unroutable_grace=0).config.unroutable_grace == timedelta(0)
    assert kind.single_node("sqlite://").config.unroutable_grace == timedelta(0)


WRITING = {"table", "schema", "create_schema", "metrics", "writer_hook", "context_providers", "serializer"}
WRITING |= {"publish_enabled", "publish_after_save", "wakeups", "header_codec", "tracing", "replication"}
WRITING |= {"ordered", "on_dead", "serialize_keys"}  # the table remembers order, and writers agree with it
PURGING = {"purge_retention", "purge_interval", "purge_batch_size"}


@pytest.mark.parametrize("option", sorted({*DEFAULTS, "retry_policy"} - WRITING - PURGING))
def test_a_writer_takes_no_option_of_delivering(kind: Any, option: str) -> None:
    """TC-193, C14"""
    value = DEFAULTS.get(option, Fixed("1s"))
    with pytest.raises(InvalidOption, match=rf"{option}=.* makes no sense in writer_only: .*delivers nothing"):
        kind.writer_only("sqlite://", **{option: value})


def test_a_writer_takes_the_options_of_writing_and_purging(kind: Any) -> None:
    """TC-194"""
    assert not kind.writer_only("sqlite://").config.delivers
    outbox = kind.writer_only(
        "sqlite://",
        purge_retention="7d",
        purge_interval="1m",
        purge_batch_size=9,
        table="other",
        metrics=MetricsExporter(),
        writer_hook=WriterHook(),
    )
    assert outbox.config.purge_retention == timedelta(days=7)


def test_an_interval_of_purging_without_an_age_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidOption, match="purge_interval='1m' has no effect without purge_retention"):
        kind("sqlite://", purge_interval="1m")


# ---------------------------------------------------------------- order


@pytest.mark.parametrize(
    "option", [{"stop_on_first_failure": False}, {"on_dead": "continue"}, {"serialize_keys": True}]
)
def test_what_says_how_order_is_kept_has_no_meaning_without_it(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"{next(iter(option))}=.* has no effect without order"):
        Outbox("sqlite://", **option)


@pytest.mark.parametrize("wrong", ["stop", "", None, True])
def test_on_dead_is_block_or_continue(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="on_dead"):
        Outbox("sqlite://", ordered=True, on_dead=wrong)


def test_one_late_heartbeat_must_not_cost_an_instance_its_partitions() -> None:
    with pytest.raises(InvalidOption, match="stale_timeout=0:00:09 is less than two heartbeats of 0:00:05"):
        OutboxConfig(stale_timeout="9s")
    assert OutboxConfig(stale_timeout="10s").stale_timeout == timedelta(seconds=10)


def test_the_longest_pause_is_no_shorter_than_the_shortest() -> None:
    with pytest.raises(InvalidOption, match="max_poll_interval=0:00:04 is shorter than poll_interval=0:00:05"):
        OutboxConfig(max_poll_interval="4s")


def test_recent_rows_are_not_skipped_where_that_would_hold_up_their_keys() -> None:
    with pytest.raises(InvalidOption, match="skip_recent=0:00:01 would hold up every key"):
        Outbox("sqlite://", ordered=True, skip_recent="1s")


def test_the_ordered_wiring_is_ordered(kind: Any) -> None:
    assert kind.ordered("sqlite://").config.ordered
    for refused in ({"ordered": False}, {"poller_enabled": False}, {"skip_recent": "1s"}):
        with pytest.raises(InvalidOption, match="makes no sense in ordered"):
            kind.ordered("sqlite://", **refused)
