"""The writer: hooks around an INSERT, and callbacks only where somebody listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aftercommit import (
    AfterCommitHook,
    DefaultListenerRegistry,
    EventEnvelope,
    InvalidOption,
    MetricsExporter,
    NotInTransaction,
    WriterHook,
)
from aftercommit.events.claims import Claimed, NewEvent, RowKey
from aftercommit.handlers.routing import OfKind
from aftercommit.meter import Meter
from aftercommit.ports import Capabilities, Colour, WrittenRows
from aftercommit.runtime.threads import ThreadRuntime, run
from aftercommit.writing.writer import OutboxWriter
from tests.support import Collector, World


class Deliberate(Exception):
    """Raised by a hook."""


class Store:
    """Remembers what was inserted; nothing else of a store is needed to write."""

    colour = Colour.BLOCKING
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.inserts: list[list[NewEvent]] = []
        self.fails: BaseException | None = None
        self.there: Collection[RowKey] = ()

    async def insert(self, tx: object, events: Sequence[NewEvent]) -> None:
        if self.fails is not None:
            raise self.fails
        self.inserts.append(list(events))

    async def surviving(self, tx: object, keys: Sequence[RowKey]) -> Collection[RowKey]:
        return self.there


class Context:
    """A transaction that remembers who waits for its end."""

    tx = object()

    def __init__(self, *, is_active: bool = True, observes_commit: bool = True) -> None:
        self.is_active = is_active
        self.observes_commit = observes_commit
        self.on_commit: list[Callable[[], None]] = []
        self.on_rollback: list[Callable[[], None]] = []
        self.written: list[WrittenRows] = []

    def is_transaction_active(self) -> bool:
        return self.is_active

    def current_connection(self) -> str:
        return "my connection"

    def after_commit(self, callback: Callable[[], None]) -> None:
        self.on_commit.append(callback)

    def after_rollback(self, callback: Callable[[], None]) -> None:
        self.on_rollback.append(callback)

    def wrote(self, rows: WrittenRows) -> None:
        self.written.append(rows)
        self.after_commit(rows.committed)
        self.after_rollback(rows.rolled_back)

    def commit(self) -> None:
        for callback in self.on_commit:
            callback()

    def rollback(self) -> None:
        for callback in self.on_rollback:
            callback()


class Slots:
    """A hot path with so many slots."""

    owner = "me"
    lock_timeout = timedelta(seconds=30)
    is_active = True

    def __init__(self, slots: int = 100) -> None:
        self.slots = slots
        self.filled: list[str] = []
        self.left: list[str] = []
        self.expected: list[str] = []
        self.fails: Exception | None = None

    def reserve(self, events: Sequence[EventEnvelope], *, with_firsts: bool = True) -> list[bool]:
        granted = []
        for _ in events:
            granted.append(self.slots > 0)
            self.slots -= granted[-1]
        return granted

    def fill(self, claimed: Sequence[Claimed]) -> None:
        if self.fails is not None:
            raise self.fails
        self.slots += len(claimed)
        self.filled += [each.event.event_id for each in claimed]

    def cancel(self, count: int) -> None:
        self.slots += count

    def left_in_table(self, events: Sequence[EventEnvelope]) -> None:
        self.left += [event.event_id for event in events]

    def unseen(self, events: Sequence[EventEnvelope]) -> None:
        self.expected += [event.event_id for event in events]


class Recording(WriterHook):
    """Remembers the payloads of every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def _note(self, phase: str, events: list[EventEnvelope]) -> None:
        self.calls.append((phase, [event.payload_json for event in events]))

    def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope] | None:
        self._note("before_write", events)
        return events

    def after_write(self, events: list[EventEnvelope]) -> None:
        self._note("after_write", events)

    def after_commit(self, events: list[EventEnvelope]) -> None:
        self._note("after_commit", events)

    def after_rollback(self, events: list[EventEnvelope]) -> None:
        self._note("after_rollback", events)


def event(payload: int | str = 1) -> EventEnvelope:
    return EventEnvelope("T", payload_json=str(payload))


def writer(store: Store, hook: WriterHook | None = None, hot_path: Slots | None = None) -> OutboxWriter:
    runtime = ThreadRuntime()
    return OutboxWriter(
        runtime,
        store,  # type: ignore[arg-type]
        Meter(runtime, MetricsExporter()),
        hook=hook,
        hot_path=hot_path,
    )


def returning(value: Any) -> WriterHook:
    class Hook(WriterHook):
        def before_write(self, events: list[EventEnvelope]) -> Any:
            return value(events) if callable(value) else value

    return Hook()


# ---------------------------------------------------------------- the transaction


def test_without_a_transaction_nothing_is_done_at_all() -> None:
    """TC-039, TC-040: neither the hook nor the store nor the hot path hears of it."""
    store, hook, path = Store(), Recording(), Slots(slots=5)
    for work in (
        lambda: writer(store, hook, path).write(event(), Context(is_active=False)),
        lambda: writer(store, hook, path).write_all([event()], Context(is_active=False)),
        lambda: writer(store, hook, path).write_all([], Context(is_active=False)),
    ):
        with pytest.raises(NotInTransaction, match=r"(?s)my connection.*Fix: "):
            run(work())
    assert (store.inserts, hook.calls, path.slots) == ([], [], 5)


# ---------------------------------------------------------------- inserting


def test_one_event_is_a_batch_of_one() -> None:
    """TC-041, TC-052: one insert, and the id comes back."""
    store, hook, given = Store(), Recording(), event()
    assert run(writer(store, hook).write(given, Context())) == given.event_id
    assert hook.calls[0] == ("before_write", ["1"])
    assert [[new.event for new in batch] for batch in store.inserts] == [[given]]


def test_a_batch_is_one_insert_and_its_ids_come_back_in_order() -> None:
    """TC-044, TC-045, TC-053."""
    store, hook, given = Store(), Recording(), [event(number) for number in range(3)]
    assert run(writer(store, hook).write_all(given, Context())) == [each.event_id for each in given]
    assert [[new.event for new in batch] for batch in store.inserts] == [given]
    assert hook.calls == [("before_write", ["0", "1", "2"]), ("after_write", ["0", "1", "2"])]


def test_who_receives_events_of_a_kind_is_asked_once_for_those_that_follow_each_other() -> None:
    store, asked = Store(), list[str]()
    kinds = {"T": OfKind(["a", "b"]), "U": OfKind(), "V": ["c", "d"]}

    def rows_of(event: EventEnvelope) -> Sequence[str]:
        asked.append(event.event_type)
        return kinds[event.event_type]

    runtime = ThreadRuntime()
    room = OutboxWriter(runtime, store, Meter(runtime, MetricsExporter()), rows_of=rows_of)  # type: ignore[arg-type]
    unique = EventEnvelope("T", payload_json="1", unique_key="u")
    store.capabilities = Capabilities(unique_keys=True)
    events = [EventEnvelope(name, payload_json="1") for name in ("T", "T", "U", "U", "V", "V", "T")]
    run(room.write_all(events, Context()))
    assert asked == ["T", "U", "V", "V", "T"]
    assert [row.handler_id for row in store.inserts[0]] == [*"abab", "", "", *"cdcd", *"ab"]
    written = room._written([events[0], unique, events[1]], Context())
    assert [row.handler_id for row in written.rows] == ["a", "b", "", "a", "b"]


def test_an_empty_batch_does_nothing() -> None:
    """TC-054."""
    store, hook, context = Store(), Recording(), Context()
    assert run(writer(store, hook, Slots()).write_all([], context)) == []
    assert (store.inserts, hook.calls, context.on_commit) == ([], [], [])


def test_rows_are_partitioned_by_their_key_and_else_by_their_id() -> None:
    store = Store()
    events = [EventEnvelope("T", payload_json="1", key="k") for _ in range(2)]
    events += [EventEnvelope("T", payload_json="1", aggregate_type="A", aggregate_id=7) for _ in range(2)]
    spread = [event() for _ in range(20)]
    run(writer(store).write_all([*events, *spread], Context()))
    partitions = [new.partition for new in store.inserts[0]]
    assert partitions[0] == partitions[1]
    assert partitions[2] == partitions[3]
    assert len(set(partitions[4:])) > 5
    assert all(0 <= partition < 256 for partition in partitions)


# ---------------------------------------------------------------- before_write


def test_a_hook_may_change_what_is_written() -> None:
    """TC-046: one replacement for two; its id is returned, and the later phases see it."""
    store, other = Store(), event("42")
    hook = Recording()
    hook.before_write = lambda events: [other]  # type: ignore[method-assign]
    context = Context()
    assert run(writer(store, hook).write_all([event(), event()], context)) == [other.event_id]
    assert [new.event for new in store.inserts[0]] == [other]
    context.commit()
    assert hook.calls == [("after_write", ["42"]), ("after_commit", ["42"])]


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_a_hook_may_suppress_what_is_written(nothing: Any) -> None:
    """TC-048 to TC-050."""
    store, context, path = Store(), Context(), Slots(slots=5)
    suppressing = writer(store, returning(nothing), path)
    assert run(suppressing.write(event(), context)) is None
    assert run(suppressing.write_all([event(), event()], context)) == []
    assert (store.inserts, context.on_commit, context.on_rollback, path.slots) == ([], [], [], 5)


def test_a_hook_may_give_any_iterable() -> None:
    store = Store()
    ids = run(writer(store, returning(lambda events: (each for each in events))).write_all([event()], Context()))
    assert ids == [store.inserts[0][0].event.event_id]


def test_a_hook_may_abort_the_write() -> None:
    """TC-047."""

    def refuse(events: list[EventEnvelope]) -> None:
        raise Deliberate("not today")

    store, context, path = Store(), Context(), Slots(slots=5)
    with pytest.raises(Deliberate, match="not today"):
        run(writer(store, returning(refuse), path).write_all([event()], context))
    assert (store.inserts, context.on_commit, path.slots) == ([], [], 5)


def test_a_hook_that_is_async_is_refused_and_writes_nothing() -> None:
    class Hook(WriterHook):
        async def before_write(self, events: list[EventEnvelope]) -> Any:  # type: ignore[override]
            return events

    store = Store()
    with pytest.raises(InvalidOption, match=r"(?s)before_write.*async.*Fix: write it as plain def"):
        run(writer(store, Hook()).write(event(), Context()))
    assert store.inserts == []


# ---------------------------------------------------------------- after_*


class Failing(Recording):
    """Raises in one phase."""

    def __init__(self, phase: str, error: BaseException) -> None:
        super().__init__()
        self._phase = phase
        self._error = error

    def _note(self, phase: str, events: list[EventEnvelope]) -> None:
        super()._note(phase, events)
        if phase == self._phase:
            raise self._error


@pytest.mark.parametrize("phase", ["after_write", "after_commit", "after_rollback"])
def test_a_later_phase_that_fails_is_logged_and_ignored(phase: str, caplog: pytest.LogCaptureFixture) -> None:
    """TC-051, TC-056, TC-057: ids come back, the insert stands, the events go on."""
    store, path, context = Store(), Slots(), Context()
    hook = Failing(phase, Deliberate("password=hunter2 was wrong"))
    event_id = run(writer(store, hook, path).write(event(), context))
    (context.rollback if phase == "after_rollback" else context.commit)()
    assert event_id is not None
    assert len(store.inserts) == 1
    assert path.filled == ([] if phase == "after_rollback" else [event_id])
    assert phase in [name for name, _ in hook.calls]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{phase} of the writer hook failed and is ignored: Deliberate" in record.getMessage()
    assert "hunter2" not in record.getMessage()


@pytest.mark.parametrize("phase", ["after_write", "after_commit", "after_rollback"])
def test_a_later_phase_that_is_async_is_said_to_be(phase: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it would run, and nobody would know."""

    class Hook(WriterHook):
        pass

    async def run_never(self: Any, events: list[EventEnvelope]) -> None:
        raise AssertionError

    setattr(Hook, phase, run_never)
    context = Context()
    assert run(writer(Store(), Hook()).write(event(), context))
    (context.rollback if phase == "after_rollback" else context.commit)()
    assert f"{phase} of the writer hook is async" in caplog.text


def test_what_a_hook_does_to_its_list_is_not_done_to_the_batch() -> None:
    class Greedy(WriterHook):
        def after_write(self, events: list[EventEnvelope]) -> None:
            events.clear()

        after_commit = after_rollback = after_write

    path, context = Slots(), Context()
    ids = run(writer(Store(), Greedy(), path).write_all([event(), event()], context))
    context.commit()
    assert len(ids) == 2
    assert path.filled == ids


def test_a_hook_that_stops_the_program_after_the_insert_keeps_no_slot() -> None:
    path, context = Slots(slots=5), Context()
    with pytest.raises(SystemExit):
        run(writer(Store(), Failing("after_write", SystemExit()), path).write(event(), context))
    context.rollback()
    assert path.slots == 5


def test_the_commit_part_of_a_hook_is_called_for_each_event() -> None:
    seen: list[str] = []
    context = Context()
    hook = AfterCommitHook(lambda each: seen.append(each.payload_json))
    run(writer(Store(), hook).write_all([event(1), event(2)], context))
    assert seen == []
    context.commit()
    assert seen == ["1", "2"]


# ---------------------------------------------------------------- callbacks


@pytest.mark.parametrize("hook", [None, WriterHook()])
def test_where_nobody_listens_no_callback_is_registered(hook: WriterHook | None) -> None:
    """TC-058: neither hook nor hot path, or a hook of no-ops."""
    context = Context()
    run(writer(Store(), hook).write_all([event(), event()], context))
    assert (context.on_commit, context.on_rollback, context.written) == ([], [], [])


def test_a_hot_path_that_does_not_run_registers_no_callback() -> None:
    context, path, store = Context(), Slots(slots=5), Store()
    path.is_active = False
    run(writer(store, None, path).write(event(), context))
    assert (context.on_commit, context.on_rollback, path.slots) == ([], [], 5)
    assert store.inserts[0][0].owner is None


def test_a_batch_registers_one_pair_of_callbacks_and_each_write_its_own() -> None:
    """TC-042, TC-043, TC-055."""
    for end, phase in (("commit", "after_commit"), ("rollback", "after_rollback")):
        context, hook = Context(), Recording()
        writes = writer(Store(), hook, Slots())
        run(writes.write_all([event(1), event(2)], context))
        run(writes.write(event(3), context))
        assert (len(context.on_commit), len(context.on_rollback)) == (2, 2)
        hook.calls.clear()
        getattr(context, end)()
        assert hook.calls == [(phase, ["1", "2"]), (phase, ["3"])]


def test_where_commits_cannot_be_seen_the_hook_hears_of_none_and_the_poller_is_told() -> None:
    store, context, hook, path = Store(), Context(observes_commit=False), Recording(), Slots(slots=5)
    event_id = run(writer(store, hook, path).write(event(), context))
    assert (context.on_commit, path.expected, path.slots) == ([], [event_id], 5)
    assert store.inserts[0][0].owner is None
    assert [phase for phase, _ in hook.calls] == ["before_write", "after_write"]


# ---------------------------------------------------------------- the hot path


def test_what_has_a_slot_is_born_leased_and_the_rest_free() -> None:
    """TC-157: capacity 1 and three events."""
    store, context, path = Store(), Context(), Slots(slots=1)
    ids = run(writer(store, None, path).write_all([event(), event(), event()], context))
    assert [new.owner for new in store.inserts[0]] == ["me", None, None]
    assert path.slots == 0
    assert path.filled == []
    context.commit()
    assert (path.filled, path.left, path.slots) == (ids[:1], ids[1:], 1)


def test_what_nobody_here_receives_is_one_free_row_and_asks_for_no_slot() -> None:
    store, context, path = Store(), Context(), Slots(slots=5)
    runtime = ThreadRuntime()
    rows_of = {"nobody": (), "one": ("",), "two": ("a", "b")}
    writes = OutboxWriter(
        runtime,
        store,  # type: ignore[arg-type]
        Meter(runtime, MetricsExporter()),
        hot_path=path,
        rows_of=lambda given: rows_of[given.event_type],
    )
    events = [EventEnvelope(name, payload_json="1") for name in rows_of]
    run(writes.write_all(events, context))
    assert [(new.event.event_type, new.handler_id, new.owner) for new in store.inserts[0]] == [
        ("nobody", "", None),
        ("one", "", "me"),
        ("two", "a", "me"),
        ("two", "b", "me"),
    ]
    assert path.slots == 2
    context.commit()
    assert path.filled == [events[1].event_id, events[2].event_id, events[2].event_id]
    assert path.left == [events[0].event_id]


def test_a_rollback_returns_the_slots() -> None:
    context, path = Context(), Slots(slots=2)
    run(writer(Store(), None, path).write_all([event(), event(), event()], context))
    context.rollback()
    assert (path.filled, path.left, path.slots) == ([], [], 2)


def test_an_insert_that_fails_returns_the_slots_and_registers_nothing() -> None:
    store, context, path = Store(), Context(), Slots(slots=2)
    store.fails = Deliberate()
    with pytest.raises(Deliberate):
        run(writer(store, Recording(), path).write_all([event(), event()], context))
    assert (path.slots, context.on_commit, context.on_rollback) == (2, [], [])


def test_of_an_insert_that_was_broken_off_what_is_there_goes_on() -> None:
    """A cancelled INSERT may have happened: what the transaction has shares its fate, the rest returns its slot."""
    store, context, path = Store(), Context(), Slots(slots=2)
    store.fails = asyncio.CancelledError()
    first, second = event(1), event(2)
    store.there = {RowKey(second.event_id, "")}
    with pytest.raises(asyncio.CancelledError):
        run(writer(store, None, path).write_all([first, second], context))
    assert path.slots == 1
    context.commit()
    assert (path.filled, path.slots) == ([second.event_id], 2)


def test_rows_that_were_undone_are_not_filled_and_the_hook_hears_of_both() -> None:
    context, hook, path = Context(), Recording(), Slots(slots=3)
    ids = run(writer(Store(), hook, path).write_all([event(1), event(2), event(3)], context))
    (rows,) = context.written
    keys = rows.keys
    assert [key.event_id for key in keys] == ids
    hook.calls.clear()
    rows.undone([keys[1]])
    context.commit()
    assert (path.filled, path.slots) == ([ids[0], ids[2]], 3)
    assert hook.calls == [("after_rollback", ["2"]), ("after_commit", ["1", "3"])]


def test_a_hot_path_that_fails_does_not_reach_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """TC-160: the commit has happened; the hook is still called."""
    context, hook, path = Context(), Recording(), Slots()
    path.fails = Deliberate("broken")
    run(writer(Store(), hook, path).write(event(), context))
    context.commit()
    assert hook.calls[-1] == ("after_commit", ["1"])
    assert "committed events are left to the poller: Deliberate: broken" in caplog.text


# ---------------------------------------------------------------- all of it, through an outbox


def test_a_hook_of_an_outbox_sees_every_phase_in_order(world: World) -> None:
    """TC-041 to TC-045: in both runtimes, with a commit, a rollback, and a savepoint."""

    async def scenario() -> None:
        hook = Recording()
        outbox = world.outbox(writer_hook=hook)
        async with outbox.transaction():
            await outbox.write("T", "1")
            try:
                async with outbox.transaction():
                    await outbox.write_all([event(2), event(3)])
                    raise Deliberate
            except Deliberate:
                pass
        assert hook.calls == [
            ("before_write", ["1"]),
            ("after_write", ["1"]),
            ("before_write", ["2", "3"]),
            ("after_write", ["2", "3"]),
            ("after_rollback", ["2", "3"]),
            ("after_commit", ["1"]),
        ]

    world.run(scenario)


def test_a_registry_is_asked_once_for_each_event_that_is_written(world: World) -> None:
    """It is the user's, and may be slow."""

    class Registry(DefaultListenerRegistry):
        def listener_for(self, aggregate_type: str, event_type: str) -> Any:
            asked.add(event_type)
            return super().listener_for(aggregate_type, event_type)

    asked = Collector()

    async def scenario() -> None:
        outbox, seen = world.outbox(listener_registry=Registry(), poller_enabled=False), Collector()
        outbox.register("T", seen.add)
        async with outbox:
            async with outbox.transaction():
                await outbox.write_all([event(1), event(2)])
                assert asked == ["T", "T"]
            await seen.reach(2)

    world.run(scenario)


def test_a_suppressing_hook_of_an_outbox_gives_none(world: World) -> None:
    """TC-048 to TC-050."""

    async def scenario() -> None:
        outbox = world.outbox(writer_hook=returning(None))
        async with outbox.transaction():
            assert await outbox.write("T", "1") is None
            assert await outbox.write_all([event()]) == []
        assert world.rows() == []

    world.run(scenario)


def test_counters_tell_what_became_of_the_events(world: World) -> None:
    """TC-156, TC-158, TC-159: two immediate ones, one delayed by a time and one by a delay, one that nobody handles."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poller_enabled=False)
        outbox.register("T", seen.add)
        async with outbox:
            async with outbox.transaction():
                await outbox.write_all([event(1), event(2)])
                await outbox.write("T", "3", deliver_after="1h")
                await outbox.write("T", "4", available_at=event().occurred_at + timedelta(hours=1))
                await outbox.write("Unknown", "5")
            await seen.reach(2)
            counters = (await outbox.stats()).counters
            assert {name: counters.get(name, 0) for name in ("hot_enqueued", "hot_dropped", "hot_skipped_delayed")} == {
                "hot_enqueued": 2,
                "hot_dropped": 0,
                "hot_skipped_delayed": 2,
            }
        owners = [row["locked_by"] for row in world.rows()]
        assert owners[2:] == [None, None, None]

    world.run(scenario)


def test_a_writer_by_hand_works_on_a_store_of_ones_own(tmp_path: Path) -> None:
    """The components are public: a writer without any outbox behind it, in a transaction of an outbox."""
    world = World("threads", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox().plain
        runtime = ThreadRuntime()
        by_hand = OutboxWriter(runtime, outbox._store, Meter(runtime, MetricsExporter()))
        with outbox.transaction() as tx:
            event_id = await by_hand.write(event(), tx)
        assert [(row["event_id"], row["locked_by"]) for row in world.rows()] == [(event_id, None)]

    world.run(scenario)
