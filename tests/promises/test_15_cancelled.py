"""Promise 15 under asyncio: close() and start() that are cancelled, at whatever await, leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from aftercommit import Outbox
from aftercommit.runtime.threads import ThreadTask
from tests.conftest import WAYS
from tests.delivery.faulty import count_from_here, faulty_store, other_tasks, ours, short_pauses, until  # noqa: F401
from tests.handlers.kit import write
from tests.promises.sessions import sessions
from tests.support import Collector, Signal, World

ON_LOOPS = ["sqlite", *(way for way, (_, runtime, _) in WAYS.items() if runtime == "asyncio")]


@pytest.fixture(params=ON_LOOPS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every store and driver under asyncio."""
    if request.param == "sqlite":
        yield World("asyncio", tmp_path)
        return
    database, runtime, scheme = WAYS[request.param]
    url: str = request.getfixturevalue("postgres_url" if database == "postgres" else "mysql_url")
    made = World(runtime, tmp_path, database, urlsplit(url)._replace(scheme=scheme).geturl())
    made.somebody.clear()
    yield made
    made.somebody.close()


class Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells each time when it waits."""

    def __init__(self, inner: Any, tell: Callable[[], None]) -> None:
        self._inner, self._tell = inner, tell

    def send(self, value: Any) -> Any:
        waits_for = self._inner.send(value)
        self._tell()
        return waits_for

    def throw(self, *error: Any) -> Any:
        waits_for = self._inner.throw(*error)
        self._tell()
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


async def cancelled_at(number: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    """Cancel it when it, or a task that it has begun, waits for the so-manieth time; whether it came to that."""
    loop, awaits, is_cancelled = asyncio.get_running_loop(), count(1), False

    def tell() -> None:
        nonlocal is_cancelled
        if next(awaits) == number:
            is_cancelled = task.cancel()

    loop.set_task_factory(lambda loop, coroutine, **named: asyncio.Task(Counted(coroutine, tell), loop=loop, **named))
    try:
        task = loop.create_task(work())
        await asyncio.wait({task})
    finally:
        loop.set_task_factory(None)
    assert task.cancelled() == is_cancelled
    return is_cancelled


def ordered(world: World) -> Any:
    """One with everything that can be left behind."""
    options = {"worker_count": 2, "drain_timeout": "10ms", "purge_retention": "1d", "poll_interval": "1h"}
    return world.outbox(ordered=True, lock_timeout="60s", **options)


async def nothing_is_left(world: World) -> None:
    assert {name for name in other_tasks() if name.startswith("aftercommit")} == set()
    await until(lambda: ours() == set())
    if world.database != "sqlite":
        gc.collect()  # psycopg leaves a connection that was not open yet to the garbage collector
        await until(lambda: sessions(world) == set())
    assert [row["locked_by"] for row in world.rows() if row["locked_by"] is not None] == []
    assert world.rows("SELECT * FROM outbox_instance") == []


@pytest.fixture(params=[7, pytest.param(1, marks=pytest.mark.slow)])
def moments(request: pytest.FixtureRequest, world: World) -> Iterator[int]:
    """The awaits to cancel at, until there are no more: all, or some where a start and a close take long."""
    return count(1, 1 if world.database == "sqlite" else request.param)


def test_promise_15_clean_stop_a_close_that_is_cancelled_anywhere_leaves_nothing_behind(
    world: World, moments: Iterator[int]
) -> None:
    async def scenario() -> None:
        outbox, entered = ordered(world), Collector()

        async def hangs(event: Any) -> None:
            entered.add(event)
            await asyncio.Event().wait()

        outbox.register("A", hangs)
        await outbox.create_schema()
        await write(outbox, *"AAA", key="a")
        await write(outbox, "A", key="b")
        is_cancelled = True
        while is_cancelled:
            running = len(entered) + 2
            await outbox.start()
            await entered.reach(running)  # the first of each key; the others wait in memory
            is_cancelled = await cancelled_at(next(moments), outbox.close)
            await nothing_is_left(world)
        assert next(moments) > 10
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(0, 0)] * 4

    world.run(scenario)


def test_promise_15_clean_stop_a_start_that_is_cancelled_anywhere_leaves_nothing_behind(
    world: World, moments: Iterator[int]
) -> None:
    async def scenario() -> None:
        outbox, seen = ordered(world), Collector()
        await outbox.create_schema()
        await outbox.close()
        while True:
            outbox = ordered(world)  # which has to look whether the tables are there
            outbox.register("A", seen.add)
            if not await cancelled_at(next(moments), outbox.start):
                break
            assert not outbox.is_started
            await nothing_is_left(world)
        assert next(moments) > 5
        await write(outbox, "A", key="a")
        await seen.reach(1)

    world.run(scenario)


# ------------------------------------------------------------ how it is cancelled


@pytest.fixture
def on_a_loop(tmp_path: Path) -> World:
    return World("asyncio", tmp_path)


async def hanging(
    world: World, release: Signal | None = None, gate: asyncio.Event | None = None, **options: Any
) -> Any:
    """An outbox that has started, and a handler that hangs in it: a sync one until the release, an async one at a gate,
    or for good."""
    outbox, entered = world.outbox(**{"drain_timeout": "1h", "lock_timeout": "60s", **options}), Signal()

    async def hangs(event: Any) -> None:
        entered.set()
        await (gate or asyncio.Event()).wait()

    def blocks(event: Any) -> None:
        entered.set()
        assert release is not None
        release.wait_here()

    outbox.register("A", hangs if release is None else blocks)
    await outbox.start()
    await write(outbox, "A", "A")
    await entered.wait()
    return outbox


def test_promise_15_clean_stop_a_cancelled_close_makes_haste(on_a_loop: World) -> None:
    """The drain would take an hour; nobody waits for it who has said that it takes too long."""

    async def scenario() -> None:
        outbox = await hanging(on_a_loop, worker_count=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(outbox.close(), 0.01)
        await nothing_is_left(on_a_loop)
        assert [(row["status"], row["attempts"]) for row in on_a_loop.rows()] == [(0, 0)] * 2

    on_a_loop.run(scenario)


def test_promise_15_clean_stop_a_cancelled_close_leaves_a_sync_handler_its_lease(on_a_loop: World) -> None:
    async def scenario() -> None:
        release = Signal()
        outbox = await hanging(on_a_loop, release, worker_count=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(outbox.close(), 0.01)
        assert [row["locked_by"] is None for row in on_a_loop.rows()] == [False, True]
        release.set()
        await until(lambda: ours() == set())

    on_a_loop.run(scenario)


@pytest.mark.parametrize("then", ["close", "start"])
def test_promise_15_clean_stop_a_close_that_was_broken_off_is_finished_by_the_next_call(
    on_a_loop: World, then: str
) -> None:
    """As programs end that cancel all tasks they find: the one in which the outbox ends is among them."""

    async def scenario() -> None:
        gate = asyncio.Event()
        outbox = await hanging(on_a_loop, gate=gate)
        closing = asyncio.create_task(outbox.close())
        await until(lambda: outbox._ending)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if not task.get_name().startswith("aftercommit"):  # which end by themselves once they are told to
                task.cancel()
        await asyncio.wait({closing})
        assert other_tasks(), "it was broken off"
        gate.set()  # handlers run in workers, which nobody has cancelled, and the drain would wait for them
        await getattr(outbox, then)()
        if then == "start":
            assert {name.rpartition("-")[2] for name in other_tasks()} >= {"keeper", "poller", "settler"}
            with suppress(TimeoutError):  # the handler may hang in it again
                await asyncio.wait_for(outbox.close(), 0.01)
        await nothing_is_left(on_a_loop)

    on_a_loop.run(scenario)


def test_promise_15_clean_stop_a_handler_that_closes_its_own_outbox_goes_on(on_a_loop: World) -> None:
    async def scenario() -> None:
        outbox, seen = on_a_loop.outbox(drain_timeout="0s"), Collector()

        async def closes(event: Any) -> None:
            await outbox.close()
            seen.add("closed")

        outbox.register("A", closes)
        await outbox.start()
        await write(outbox, "A")
        await seen.reach(1)

    on_a_loop.run(scenario)


def test_promise_15_clean_stop_a_close_in_the_middle_of_a_start_wins(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store)
        opening = store.hold("open")
        starting = asyncio.create_task(outbox.start())
        await opening.entered.wait()
        await outbox.close()
        assert opening.release is not None
        opening.release.set()
        await starting
        assert not outbox.is_started
        assert {name for name in other_tasks() if name.startswith("aftercommit")} == set()
        await until(lambda: ours() == set())

    world = World("asyncio", tmp_path)
    world.run(scenario)


def test_promise_15_clean_stop_a_close_that_ctrl_c_breaks_off_is_finished_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under threads, at each place where it waits for a thread to end."""
    waits = [0]
    join = ThreadTask.join

    async def interrupted(self: ThreadTask, timeout: float | None) -> bool:
        waits[0] -= 1
        if waits[0] == 0:
            raise KeyboardInterrupt
        return await join(self, timeout)

    monkeypatch.setattr(ThreadTask, "join", interrupted)
    outbox = Outbox(f"sqlite:///{tmp_path}/outbox.db", worker_count=2, ordered=True)
    for number in count(1):
        outbox.start()
        waits[0] = number
        try:
            outbox.close()
        except KeyboardInterrupt:
            assert outbox._ending
            outbox.close()
        assert ours() == set()
        if waits[0] > 0:
            break
    assert number > 5
