"""Outbox and AsyncOutbox as a program meets them: one face in two colours, a life that may be begun again."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aftercommit
from aftercommit import (
    AsyncOutbox,
    ColourMismatch,
    DefaultListenerRegistry,
    EventEnvelope,
    EventStatus,
    InvalidOption,
    MultiListenerRegistry,
    Outbox,
    OutboxError,
    UnknownStore,
)
from aftercommit.async_outbox import AsyncTransaction
from aftercommit.outbox import DeadLetters, EventRecords, PendingLetters, Transaction
from aftercommit.polling.pending import PendingEvents
from aftercommit.polling.records import OutboxRecords
from aftercommit.polling.upkeep import DeadEvents
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.sqlite.target import sqlite_from_url
from tests.delivery.faulty import (
    count_from_here,  # noqa: F401  (used by every test here)
    faulty_store,
    other_tasks,
    ours,
    short_pauses,  # noqa: F401  (used by every test here)
)
from tests.support import PATIENCE, Collector, Signal, World, painted

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

NAMES = [
    "AfterCommitHook",
    "AggregateType",
    "AsyncOutbox",
    "AsyncOutboxDispatcher",
    "AsyncOutboxPoller",
    "AsyncOutboxWriter",
    "BatchResult",
    "BrokenRelay",
    "BlockedKey",
    "CannotStart",
    "Claimed",
    "Cluster",
    "ClusterMember",
    "ClusterStats",
    "ColourMismatch",
    "ConnectionProvider",
    "ContextProvider",
    "DeadEvent",
    "DeadLetter",
    "DefaultInFlightTracker",
    "DefaultListenerRegistry",
    "Delivered",
    "Discard",
    "DispatchResult",
    "DispatcherCommitHook",
    "Done",
    "DrainResult",
    "DuplicateHandler",
    "DuplicateListener",
    "EventEnvelope",
    "EventRecord",
    "EventId",
    "EventInterceptor",
    "EventListener",
    "EventMetadata",
    "EventStatus",
    "EventStore",
    "EventType",
    "Exponential",
    "ExponentialJitter",
    "Failure",
    "FailureContext",
    "Finding",
    "Fixed",
    "Handler",
    "HandlerSet",
    "HandlerTimeout",
    "HeaderCodec",
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
    "Level",
    "Linear",
    "ListenerRegistry",
    "MetricsExporter",
    "MessageRefused",
    "MissingDriver",
    "MsgpackSerializer",
    "MultiListenerRegistry",
    "NoRetry",
    "NotAwaited",
    "NotInTransaction",
    "Outbox",
    "OutboxConfig",
    "OutboxDispatcher",
    "OtelMetrics",
    "OtelTracing",
    "OutboxError",
    "OutboxFallbackHandler",
    "OutboxHandler",
    "OutboxOptions",
    "OutboxPoller",
    "OutboxPollerHandler",
    "OutboxTypedHandler",
    "OutboxWriter",
    "PartitionHasher",
    "PartitionStats",
    "Pause",
    "PauseKind",
    "PayloadNotText",
    "PayloadTooLarge",
    "PollResult",
    "PollTrigger",
    "PrometheusMetrics",
    "QueuedEvent",
    "RetryAfter",
    "RetryAfterError",
    "RetryPolicy",
    "SchemaMismatch",
    "SchemaMissing",
    "SchemaStatus",
    "Serializer",
    "Source",
    "Stats",
    "Summary",
    "TypeSummary",
    "StoreBusy",
    "StoreForbidden",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoredError",
    "StringAggregateType",
    "StringEventType",
    "TableState",
    "Tracing",
    "TransactionEnded",
    "TxContext",
    "Unavailable",
    "UndecodablePayload",
    "UndecodableRow",
    "UnknownStore",
    "UnroutableEvent",
    "UnsupportedTransaction",
    "WriterHook",
    "WrongBatchResult",
    "any_event",
    "current_context",
    "outbox_event",
    "register_store",
    "schema_sql",
]

METHODS = {
    *(
        "begin",
        "close",
        "create_schema",
        "drain",
        "poll",
        "purge",
        "register",
        "relay",
        "start",
        "stats",
        "transaction",
    ),
    *("check_health", "dead", "health", "is_started", "multi_node", "single_node", "write", "write_all", "writer_only"),
    *("pause", "paused", "resume", "schema_sql", "schema_status"),
    *("cancel", "cluster", "configured", "diagnose", "ordered", "owner_id", "pending", "records", "replay_done"),
    *("attach", "fallback", "handler", "include", "publish", "subscribe", "upcast"),
}


async def write(outbox: Any, *kinds: str) -> list[str]:
    async with outbox.transaction():
        return [await outbox.write(kind, {}) for kind in kinds]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


# ---------------------------------------------------------------- the face


def test_the_public_names_are_these() -> None:
    assert sorted(aftercommit.__all__) == sorted(NAMES)


def test_every_public_name_is_there() -> None:
    for name in NAMES:
        assert getattr(aftercommit, name) is not None
    with pytest.raises(AttributeError, match="Outbax"):
        aftercommit.Outbax  # noqa: B018


def test_the_methods_of_an_outbox_are_these() -> None:
    assert public(Outbox) == METHODS


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [
        (Outbox, AsyncOutbox),
        (DeadLetters, DeadEvents),
        (PendingLetters, PendingEvents),
        (EventRecords, OutboxRecords),
        (Transaction, AsyncTransaction),
    ],
    ids=["outbox", "dead letters", "pending", "records", "transaction"],
)
def test_both_colours_have_the_same_methods_with_the_same_parameters(blocking: type, asynchronous: type) -> None:
    assert public(blocking) == public(asynchronous)
    for name in public(blocking):
        one, other = inspect.getattr_static(blocking, name), inspect.getattr_static(asynchronous, name)
        assert isinstance(one, property) == isinstance(other, property), name
        if callable(getattr(blocking, name)):
            ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (blocking, asynchronous))
            assert list(ours.parameters.values()) == list(theirs.parameters.values()), name


@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox])
@pytest.mark.parametrize("event", [("T", {}), (EventEnvelope.of_json("T", "{}"),)], ids=["type", "envelope"])
def test_a_keyword_that_write_does_not_know_is_named(kind: Any, event: tuple[Any, ...]) -> None:
    """At the call, before anything else is looked at; and not only by a type checker."""
    with pytest.raises(TypeError, match=r"write\(\) got an unexpected keyword argument 'kye'"):
        kind("sqlite://").write(*event, key="k", kye="k")


def test_what_waits_is_awaited_and_the_rest_is_plain_in_both() -> None:
    plain = {"register", "health", "is_started", "single_node", "multi_node", "writer_only", "dead", "transaction"}
    plain |= {
        "configured",
        "ordered",
        "owner_id",
        "pending",
        "records",
        "attach",
        "schema_sql",
        "fallback",
        "handler",
        "include",
        "relay",
        "subscribe",
        "upcast",
    }
    for name in METHODS - plain - {"write", "write_all", "publish"}:
        assert not inspect.iscoroutinefunction(getattr(Outbox, name)), name
        assert inspect.iscoroutinefunction(getattr(AsyncOutbox, name)), name
    for name in ("__enter__", "__exit__"):
        assert hasattr(Outbox, name)
        assert not hasattr(AsyncOutbox, name), "with instead of async with must not look as if it worked"
        asynchronous = name.replace("__", "__a", 1)
        assert hasattr(AsyncOutbox, asynchronous)
        assert not hasattr(Outbox, asynchronous)


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox])
@pytest.mark.parametrize("wrong", [None, 3, object()])
def test_an_outbox_needs_a_target(kind: Any, wrong: Any) -> None:
    """TC-119, TC-192"""
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(UnknownStore):
        kind(wrong)


def test_a_store_of_the_other_colour_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with pytest.raises(ColourMismatch, match="Outbox is blocking"):
        Outbox(sqlite_from_url(url, Colour.ASYNC))
    with pytest.raises(ColourMismatch, match="AsyncOutbox is async"):
        AsyncOutbox(sqlite_from_url(url, Colour.BLOCKING))


# ---------------------------------------------------------------- listeners


def test_register_may_be_chained(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        plain = outbox if world.is_async else outbox.plain
        assert plain.register("A", print).register("Order", "B", print) is plain

    world.run(scenario)


@pytest.mark.parametrize("registry", [DefaultListenerRegistry, MultiListenerRegistry])
def test_a_registry_that_is_filled_later_is_the_one_to_use(world: World, colour: Colouring, registry: Any) -> None:
    """Empty it is false, and must not be taken for none."""

    async def scenario() -> None:
        seen, listeners = Collector(), registry()
        outbox = world.outbox(listener_registry=listeners)
        listeners.register("A", colour(seen.add))
        await write(outbox, "A")
        assert await outbox.poll() == 1
        assert len(seen) == 1

    world.run(scenario)


def test_a_registry_without_register_is_used_and_not_registered_with(world: World) -> None:
    async def scenario() -> None:
        class Own:
            def listener_for(self, aggregate_type: str, event_type: str) -> Any:
                return print

        with pytest.raises(InvalidOption, match="has no register"):
            world.outbox(listener_registry=Own()).register("A", print)

    world.run(scenario)


# ---------------------------------------------------------------- life


def test_starting_and_closing_may_be_repeated(world: World) -> None:
    """TC-126, TC-177, promise 15"""

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("A", lambda event: None)
        await outbox.close()
        assert not outbox.is_started
        await outbox.start()
        engine, threads, tasks = outbox._engine, ours(), other_tasks()
        await outbox.start()
        assert outbox._engine is engine
        assert (ours(), other_tasks()) == (threads, tasks)
        assert outbox.is_started
        await outbox.close()
        await outbox.close()
        assert not outbox.is_started
        assert (ours(), other_tasks()) == (set(), set())

    world.run(scenario)


def test_an_outbox_starts_and_closes_fifty_times(world: World) -> None:
    """F108: each time a new owner, and each time it delivers hot and cold, in both colours."""

    async def scenario() -> None:
        hot, cold, owners = Collector(), Collector(), set()

        async def async_listener(event: EventEnvelope) -> None:
            cold.add(event)

        outbox = world.outbox(poll_interval="1h", worker_count=2)
        outbox.register("Hot", hot.add)
        outbox.register("Cold", async_listener)
        for number in range(1, 51):
            await write(outbox, "Cold")
            async with outbox:
                owners.add(outbox._engine.owner)
                await write(outbox, "Hot")
                await hot.reach(number)
                await cold.reach(number)
            assert (ours(), other_tasks()) == (set(), set())
        assert len(owners) == 50
        assert world.statuses() == [EventStatus.DONE] * 100

    world.run(scenario)


def test_a_block_gives_the_outbox_and_closes_it_whatever_happens(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(LookupError):
            async with outbox as given:
                assert given is outbox
                assert outbox.is_started
                raise LookupError
        assert not outbox.is_started
        assert (ours(), other_tasks()) == (set(), set())

    world.run(scenario)


def test_a_start_that_failed_may_be_repeated(world: World) -> None:
    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store)
        outbox.register("A", seen.add)
        store.fail("open", ConnectionError("not yet"))
        with pytest.raises(ConnectionError):
            await outbox.start()
        assert not outbox.is_started
        assert (ours(), other_tasks()) == (set(), set())
        async with outbox:
            await write(outbox, "A")
            await seen.reach(1)

    world.run(scenario)


def test_two_that_start_at_once_start_one_outbox(world: World) -> None:
    """The services of an engine that nobody refers to would run for ever."""

    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, worker_count=1)
        runtime = outbox._current().runtime
        fault = store.hold("open")
        engines = Collector()

        async def starting() -> None:
            await outbox.start()

        first = runtime.spawn("first", starting)
        await fault.entered.wait()
        engines.add(outbox._engine)
        second = runtime.spawn("second", starting)
        await second.join(0.2)
        fault.release.set()
        assert await first.join(PATIENCE)
        assert await second.join(PATIENCE)
        engines.add(outbox._engine)
        for engine in set(engines):
            await engine.stop()
        assert engines[0] is engines[1]

    world.run(scenario)


def test_after_close_it_still_writes_and_polls_by_hand(world: World) -> None:
    """TC-177"""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register("A", seen.add)
        async with outbox:
            pass
        await write(outbox, "A")
        assert world.rows()[0]["locked_by"] is None, "born free: nobody here would deliver it"
        assert await outbox.poll() == 1
        assert (await outbox.drain()).is_complete
        assert len(seen) == 1

    world.run(scenario)


@pytest.mark.parametrize("kind", ["threads, sync", "threads, async", "asyncio, async"])
def test_a_handler_may_close_the_outbox(tmp_path: Path, kind: str) -> None:
    """It is one that still runs after close(); everything else comes to its end."""
    world_name, colour = kind.split(", ")
    world = World(world_name, tmp_path)

    async def scenario() -> None:
        closed = Collector()
        outbox = world.outbox(drain_timeout=0, worker_count=2)

        async def async_closing(event: EventEnvelope) -> None:
            try:
                closed.add(await outbox.close())
            except BaseException as error:
                closed.add(error)

        def closing(event: EventEnvelope) -> None:
            try:
                closed.add(outbox.plain.close())
            except BaseException as error:
                closed.add(error)

        outbox.register("A", async_closing if world.is_async else painted(colour, closing))
        await outbox.start()
        engine = outbox._engine
        await write(outbox, "A")
        await closed.reach(1)
        assert closed == [None]
        assert not outbox.is_started
        for service in (engine.keeper, engine.settler, engine.poller):
            assert service.is_stopping, service.name

    world.run(scenario)


def test_nothing_of_the_database_stays_open(world: World, colour: Colouring) -> None:
    """TC-191: many writers at once, everything delivered, and no connection left."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(batch_size=5)
        outbox.register("A", colour(lambda event: seen.add(event.event_id)))
        async with outbox:
            await _many_writers(world, outbox, writers=4, each=10)
            with pytest.raises(LookupError):
                async with outbox.transaction():
                    await outbox.write("A", {})
                    raise LookupError
            await world.until_settled(40)
        assert len(seen) == len(set(seen)) == 40
        assert len(world.rows()) == 40
        assert _open_files(world.path) == []

    world.run(scenario)


async def _many_writers(world: World, outbox: Any, *, writers: int, each: int) -> None:
    async def writing() -> None:
        for _ in range(each):
            await write(outbox, "A")

    if world.is_async:
        await asyncio.gather(*(writing() for _ in range(writers)))
        return
    threads = [threading.Thread(target=lambda: run(writing())) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _open_files(path: Path) -> list[str]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this platform does not show open files")
    found = []
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except OSError:
            continue
        if target.startswith(str(path)):
            found.append(target)
    return found


PROGRAMS = {
    "threads": """
from aftercommit import Outbox
outbox = Outbox("sqlite://").register("A", lambda event: print("delivered", flush=True)).start()
with outbox.transaction():
    outbox.write("A", {})
while not outbox.stats().counters.get("dispatch_success"): pass
""",
    "threads, async handler running": """
import asyncio, threading
from aftercommit import Outbox
entered = threading.Event()
async def sleeps(event):
    print("delivered", flush=True)
    entered.set()
    await asyncio.Event().wait()
outbox = Outbox("sqlite://").register("A", sleeps).start()
with outbox.transaction():
    outbox.write("A", {})
entered.wait(20)
""",
    "asyncio": """
import asyncio
from aftercommit import AsyncOutbox
async def main():
    entered = asyncio.Event()
    async def sleeps(event):
        print("delivered", flush=True)
        entered.set()
        await asyncio.Event().wait()
    outbox = await AsyncOutbox("sqlite://").register("A", sleeps).start()
    async with outbox.transaction():
        await outbox.write("A", {})
    await entered.wait()
asyncio.run(main())
""",
    "asyncio, sync handler stuck": """
import asyncio, threading
from aftercommit import AsyncOutbox
async def main():
    loop, entered = asyncio.get_running_loop(), asyncio.Event()
    def stuck(event):
        print("delivered", flush=True)
        loop.call_soon_threadsafe(entered.set)
        threading.Event().wait()
    outbox = await AsyncOutbox("sqlite://").register("A", stuck).start()
    async with outbox.transaction():
        await outbox.write("A", {})
    await entered.wait()
asyncio.run(main())
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_forgets_to_close_ends_all_the_same(program: str) -> None:
    """F62: soon, and without a storm of tracebacks."""
    ran = subprocess.run(
        [sys.executable, "-W", "default", "-W", "ignore::ResourceWarning", "-c", PROGRAMS[program]],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, ["delivered"], "")


# ---------------------------------------------------------------- loops


@pytest.fixture
def async_outbox(tmp_path: Path) -> Iterator[AsyncOutbox]:
    outbox = AsyncOutbox(f"sqlite:///{tmp_path / 'outbox.db'}", poll_interval="1h")
    yield outbox
    asyncio.run(outbox._store.close())


def test_not_started_it_may_be_used_on_one_loop_after_another(async_outbox: AsyncOutbox, colour: Colouring) -> None:
    seen = Collector()
    async_outbox.register("A", colour(seen.add))
    for number in range(1, 4):
        asyncio.run(_write_one(async_outbox))
        assert asyncio.run(async_outbox.poll()) == 1
        assert asyncio.run(async_outbox.drain()).is_complete
        assert asyncio.run(async_outbox.stats()).backlog.new == 0
        assert len(seen) == number
    asyncio.run(async_outbox.close())


async def _write_one(outbox: AsyncOutbox) -> None:
    await write(outbox, "A")


def test_used_on_one_loop_it_may_be_started_on_the_next(async_outbox: AsyncOutbox) -> None:
    seen = Collector()
    async_outbox.register("A", seen.add)
    asyncio.run(_write_one(async_outbox))

    async def started() -> None:
        async with async_outbox:
            await seen.reach(1)

    asyncio.run(started())


def test_closed_on_one_loop_it_may_be_started_on_the_next(async_outbox: AsyncOutbox) -> None:
    seen = Collector()
    async_outbox.register("A", seen.add)

    async def whole(number: int) -> None:
        async with async_outbox:
            await write(async_outbox, "A")
            await seen.reach(number)

    for number in (1, 2, 3):
        asyncio.run(whole(number))


def test_started_it_is_refused_on_another_loop(async_outbox: AsyncOutbox) -> None:
    started, release = Signal(), Signal()

    async def owner() -> None:
        async with async_outbox:
            started.set()
            await release.wait()

    async def stranger() -> None:
        for use in (
            lambda: _write_one(async_outbox),
            async_outbox.begin,
            async_outbox.poll,
            async_outbox.drain,
            async_outbox.stats,
        ):
            with pytest.raises(OutboxError, match="started on another event loop") as caught:
                await use()
            assert "one outbox per loop" in caught.value.fix

    thread = threading.Thread(target=lambda: asyncio.run(owner()))
    thread.start()
    started.wait_here()
    try:
        asyncio.run(stranger())
        assert async_outbox.health().is_healthy
    finally:
        release.set()
        thread.join()


@pytest.mark.parametrize("method", ["start", "close"])
def test_started_it_is_neither_started_nor_closed_on_another_loop(async_outbox: AsyncOutbox, method: str) -> None:
    started, release = Signal(), Signal()

    async def owner() -> None:
        await async_outbox.start()
        engine = async_outbox._engine
        started.set()
        await release.wait()
        async_outbox._engine = engine
        await async_outbox.close()

    async def stranger() -> None:
        with pytest.raises(OutboxError, match="started on another event loop"):
            await asyncio.wait_for(getattr(async_outbox, method)(), 0.5)

    thread = threading.Thread(target=lambda: asyncio.run(owner()))
    thread.start()
    started.wait_here()
    try:
        asyncio.run(stranger())
    finally:
        release.set()
        thread.join()


def test_an_outbox_whose_loop_is_gone_is_closed_and_started_again(async_outbox: AsyncOutbox) -> None:
    """Its program forgot to close it, and asyncio.run has cancelled everything."""
    seen = Collector()
    async_outbox.register("A", seen.add)

    async def forgetful() -> None:
        await async_outbox.start()
        await write(async_outbox, "A")
        await seen.reach(1)

    async def careful() -> None:
        await async_outbox.close()
        async with async_outbox:
            await write(async_outbox, "A")
            await seen.reach(2)

    asyncio.run(forgetful())
    asyncio.run(careful())


# ---------------------------------------------------------------- wirings


def test_a_single_node_delivers_hot_and_cold(world: World, colour: Colouring) -> None:
    """C15"""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(wiring="single_node", poll_interval="1h")
        outbox.register("A", colour(seen.add))
        await write(outbox, "A")
        async with outbox:
            await seen.reach(1)
            await write(outbox, "A")
            await seen.reach(2)
            counters = (await outbox.stats()).counters
            assert (counters["cold_enqueued"], counters["hot_enqueued"]) == (1, 1)

    world.run(scenario)


def test_a_node_leaves_to_others_what_it_cannot_route(world: World) -> None:
    """F72: a fleet in the middle of a deploy."""

    async def scenario() -> None:
        seen = Collector()
        old, new = (world.outbox(wiring="multi_node", poll_interval="1h") for _ in range(2))
        old.register("A", seen.add)
        new.register("B", seen.add)
        await write(old, "B")
        assert await old.poll() == 1
        row = world.rows()[0]
        assert (row["status"], row["attempts"], row["locked_by"]) == (EventStatus.RETRY, 0, None)
        world.change("UPDATE outbox_event SET available_at = 0")
        assert await new.poll() == 1
        assert len(seen) == 1

    world.run(scenario)


def test_a_writer_writes_and_delivers_nothing(world: World) -> None:
    """TC-190, C14"""

    async def scenario() -> None:
        outbox = world.outbox(wiring="writer_only")
        async with outbox:
            await write(outbox, "A")
            assert (ours() - {"aftercommit-sqlite-1", "aftercommit-sqlite-2"}, other_tasks()) == (set(), set())
            assert outbox.health().is_healthy
            for method in ("poll", "drain"):
                with pytest.raises(InvalidOption, match="writer-only"):
                    await getattr(outbox, method)()
            with pytest.raises(InvalidOption, match="writer-only"):
                outbox.register("A", print)
            assert (await outbox.stats()).backlog.new == 1
        row = world.rows()[0]
        assert (row["status"], row["locked_by"]) == (EventStatus.NEW, None)

    world.run(scenario)
