"""The first event of a key is born leased and delivered from memory; what follows it keeps its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from aftercommit import Fixed
from aftercommit.events.claims import order_key_of, partition_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.runtime.threads import run
from tests.ordered.kit import NEVER, Handler, number_of, of_key, ordered, write
from tests.support import PATIENCE, Collector, Signal, World

#: Wherever transactions that write one key do not overlap.
PLACES = {
    "sqlite-threads": ("sqlite", "threads", ""),
    "sqlite-asyncio": ("sqlite", "asyncio", ""),
    "postgres-threads": ("postgres", "threads", "postgresql"),
    "postgres-asyncio": ("postgres", "asyncio", "postgresql"),
    "postgres-asyncpg": ("postgres", "asyncio", "postgresql+asyncpg"),
}

on_postgres = pytest.mark.parametrize("place", [name for name in PLACES if name.startswith("postgres")], indirect=True)

WAITS_FOR_A_LOCK = """
SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """With empty tables."""
    database, runtime, scheme = PLACES[request.param]
    if database == "sqlite":
        yield World(runtime, tmp_path)
        return
    url: str = request.getfixturevalue("postgres_url")
    world = World(runtime, tmp_path, database, urlsplit(url)._replace(scheme=scheme).geturl())
    world.somebody.clear()
    yield world
    world.somebody.close()


def serialized(place: World, handler: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    if place.database != "sqlite":
        options["serialize_keys"] = True
    return ordered(place, handler, **{"lock_timeout": "1h", **options})


@asynccontextmanager
async def unstarted(place: World) -> AsyncIterator[Any]:
    """It only writes, as another process might. Its sessions end with the block."""
    outbox = serialized(place)
    try:
        yield outbox
    finally:
        await outbox.close()


class Held:
    """A handler that holds the event 1 until it may go on, in either colour."""

    def __init__(self, colour: str) -> None:
        self.seen, self.began, self.goes_on = Collector(), Signal(), Signal()
        self.handle = self._sync if colour == "sync" else self._async

    def _sync(self, event: Any) -> None:
        if number_of(event) == 1:
            self.began.set()
            self.goes_on.wait_here()
        self.seen.add((event.key, number_of(event)))

    async def _async(self, event: Any) -> None:
        if number_of(event) == 1:
            self.began.set()
            await asyncio.to_thread(self.goes_on.wait_here)
        self.seen.add((event.key, number_of(event)))


def handled_by(outbox: Any, handler: Held) -> Any:
    outbox.handler("Counted", id="count")(handler.handle)
    return outbox


class Beside:
    """Something that runs at the same time: in a thread of its own, or in a task."""

    def __init__(self, place: World, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread: threading.Thread | None = None
        if place.is_async:
            self._task = asyncio.ensure_future(work())
        else:
            self._thread = threading.Thread(target=lambda: run(work()))
            self._thread.start()

    async def end(self) -> None:
        if self._thread is None:
            await asyncio.wait_for(self._task, PATIENCE)
        else:
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive()


def owners(place: World) -> list[bool]:
    """Which rows are leased, in order."""
    return [row[0] is not None for row in place.rows("SELECT locked_by FROM outbox_event ORDER BY position")]


def counted(outbox: Any, counter: str) -> int:
    count: int = outbox._engine.meter.counts().get(counter, 0)
    return count


async def until(predicate: Callable[[], Any]) -> None:
    """For states of memory, which send no signal."""
    watch = threading.Event()

    def look() -> None:
        for _ in range(int(PATIENCE / 0.005)):
            if predicate():
                return
            watch.wait(0.005)
        raise AssertionError("it never came to that")

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        look()
    else:
        await asyncio.to_thread(look)


# ---------------------------------------------------------------- born leased, or born free


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_first_event_of_a_key_is_delivered_from_memory_and_what_follows_it_right_behind(
    place: World, colour: str
) -> None:
    async def scenario() -> None:
        handler = Held(colour)
        async with handled_by(serialized(place), handler) as outbox:
            await write(outbox, 1)
            await handler.began.wait()
            await write(outbox, 2)
            await write(outbox, 3, 4)
            assert owners(place) == [True, False, False, False]
            handler.goes_on.set()
            await handler.seen.reach(4)
            assert counted(outbox, "hot_enqueued") == 1
            assert counted(outbox, "cold_enqueued") == 3
        assert of_key(handler.seen, "a") == [1, 2, 3, 4]

    place.run(scenario)


def test_of_the_events_of_a_key_in_one_transaction_the_first_is_leased(place: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler) as outbox:
            await write(outbox, 1, 2)
            async with outbox.transaction():
                await outbox.write_all(
                    [EventEnvelope("Counted", payload_json=str(number), key=key) for number in (1, 2) for key in "bc"]
                )
            await handler.seen.reach(6)
            assert counted(outbox, "hot_enqueued") == 3
        assert all(of_key(handler.seen, key) == [1, 2] for key in "abc")

    place.run(scenario)


def test_an_event_after_a_settled_one_is_the_first_again(place: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler) as outbox:
            for number in range(5):
                await write(outbox, number)
                await handler.seen.reach(number + 1)
                await until(lambda: not outbox._engine.held.keys())
            assert counted(outbox, "hot_enqueued") == 5
            assert counted(outbox, "cold_enqueued") == 0
        assert of_key(handler.seen, "a") == list(range(5))

    place.run(scenario)


def test_a_row_for_each_handler_shares_the_place_of_its_event(place: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = serialized(place)
        for name in ("one", "two"):
            outbox.handler("Counted", id=name)(lambda event, name=name: seen.add((name, number_of(event))))
        async with outbox:
            await write(outbox, 1)
            await write(outbox, 2)
            await seen.reach(4)
            assert counted(outbox, "hot_enqueued") >= 1
        assert seen == [("one", 1), ("two", 1), ("one", 2), ("two", 2)]

    place.run(scenario)


def test_behind_an_event_that_waits_for_its_retry_nothing_is_leased(place: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 1}
        async with serialized(place, handler, retry_policy=Fixed(NEVER)) as outbox:
            await write(outbox, 1)
            await place.until_settled(1, status=2)
            await until(lambda: not outbox._engine.held.keys())
            await write(outbox, 2)
            assert owners(place) == [False, False]
            place.change("UPDATE outbox_event SET available_at = 0")
            await outbox.poll()
            await handler.seen.reach(2)
            assert counted(outbox, "hot_enqueued") == 1
        assert of_key(handler.tries, "a") == [1, 1, 2]

    place.run(scenario)


@pytest.mark.parametrize("on_dead", ["block", "continue"])
def test_a_dead_event_counts_as_unfinished_while_it_blocks_its_key(place: World, on_dead: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 1}
        outbox = serialized(place, handler, on_dead=on_dead, retry_policy=Fixed("1s", max_attempts=1))
        await outbox.create_schema()
        async with outbox:
            (dead,) = await write(outbox, 1)
            await place.until_settled(1, status=3)
            await until(lambda: not outbox._engine.held.keys())
            await write(outbox, 2)
            if on_dead == "block":
                assert owners(place) == [False, False]
                assert counted(outbox, "hot_enqueued") == 1
                await outbox.dead.replay(dead)
            else:
                await handler.seen.reach(1)
                assert counted(outbox, "hot_enqueued") == 2
                await outbox.dead.replay(dead)
            await handler.seen.reach(2)
        assert of_key(handler.seen, "a") == ([1, 2] if on_dead == "block" else [2, 1])

    try:
        place.run(scenario)
    finally:
        if place.database != "sqlite":
            place.change("UPDATE outbox_schema SET value = 'block' WHERE name = 'on_dead'")


@on_postgres
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_where_a_transaction_has_one_snapshot_its_events_are_born_free(place: World, isolation: str) -> None:
    """It may be older than the lock on the key, and so may what it sees of it."""

    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler) as outbox:
            async with outbox.transaction(isolation=isolation):
                await outbox.write("Counted", "1", key="a")
            await handler.seen.reach(1)
            assert counted(outbox, "hot_enqueued") == 0
            assert counted(outbox, "cold_enqueued") == 1

    place.run(scenario)


@on_postgres
def test_without_serialize_keys_events_of_keys_are_born_free(place: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with ordered(place, handler) as outbox:
            await write(outbox, 1)
            await handler.seen.reach(1)
            assert counted(outbox, "hot_enqueued") == 0

    place.run(scenario)


# ---------------------------------------------------------------- races


@on_postgres
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_writer_that_waited_for_the_lock_sees_what_the_other_wrote(place: World, colour: str, ending: str) -> None:
    """When it asked for the lock there was nothing of the key yet. The other is as good as another process: what it
    writes is in no memory."""

    async def scenario() -> None:
        handler = Handler()
        async with unstarted(place) as stranger, serialized(place, handler, colour=colour) as outbox:
            async with stranger.transaction() as tx:
                await stranger.write("Counted", "1", key="a")
                second = Beside(place, lambda: write(outbox, 2))
                await place.until(WAITS_FOR_A_LOCK)
                await (tx.commit() if ending == "commit" else tx.rollback())
            await second.end()
            numbers = [1, 2] if ending == "commit" else [2]
            await handler.seen.reach(len(numbers))
            assert counted(outbox, "hot_enqueued") == (0 if ending == "commit" else 1)
        assert of_key(handler.seen, "a") == numbers

    place.run(scenario)


@on_postgres
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_of_two_writers_in_one_process_the_one_that_waited_is_not_the_first(place: World, colour: str) -> None:
    async def scenario() -> None:
        handler = Held(colour)
        async with handled_by(serialized(place), handler) as outbox:
            async with outbox.transaction():
                await outbox.write("Counted", "1", key="a")
                second = Beside(place, lambda: write(outbox, 2))
                await place.until(WAITS_FOR_A_LOCK)
            await handler.began.wait()
            await second.end()
            assert owners(place) == [True, False]
            handler.goes_on.set()
            await handler.seen.reach(2)
            assert counted(outbox, "hot_enqueued") == 1
        assert of_key(handler.seen, "a") == [1, 2]

    place.run(scenario)


def test_a_call_for_what_follows_waits_also_between_a_commit_and_its_callback(place: World) -> None:
    """A claim then would find the first event leased, and nobody would look again before the next poll."""

    async def scenario() -> None:
        handler, late = Handler(), list[tuple[Callable[..., None], Any]]()
        async with serialized(place, handler) as outbox:
            engine = outbox._engine
            fill, not_expected = engine.hot_path.fill, engine.hot_path.not_expected
            engine.hot_path.fill = lambda claimed: late.append((fill, claimed))
            engine.hot_path.not_expected = lambda events: late.append((not_expected, events))
            await write(outbox, 1)
            assert [len(given) for _, given in late] == [1, 1]
            await write(outbox, 2)
            key = order_key_of(EventEnvelope("Counted", key="a", payload_json="2"))
            await until(lambda: key in engine.agenda._parked)
            for callback, given in late:
                callback(given)
            await handler.seen.reach(2)
        assert of_key(handler.seen, "a") == [1, 2]

    place.run(scenario)


def test_an_event_whose_insert_was_broken_off_is_free_once_it_is_committed(place: World) -> None:
    """Nobody knows then whether it was born leased."""

    class BrokenOff(BaseException):
        """After the INSERT."""

    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler) as outbox:
            insert = outbox._store.insert

            async def broken_off(*given: Any) -> None:
                await insert(*given)
                raise BrokenOff

            outbox._store.insert = broken_off
            async with outbox.transaction():
                with pytest.raises(BrokenOff):
                    await outbox.write("Counted", "1", key="a")
            outbox._store.insert = insert
            await handler.seen.reach(1)
            assert (counted(outbox, "hot_enqueued"), counted(outbox, "lease_lost")) == (0, 0)
            await write(outbox, 2)
            await handler.seen.reach(2)
        assert of_key(handler.seen, "a") == [1, 2]

    place.run(scenario)


# ---------------------------------------------------------------- what never comes


@pytest.mark.parametrize("part", ["whole", "savepoint"])
def test_a_rollback_gives_back_the_slot_and_the_key(place: World, part: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler, hot_queue_capacity=1) as outbox:
            for _ in range(3):
                if part == "whole":
                    with pytest.raises(ZeroDivisionError):
                        async with outbox.transaction():
                            await outbox.write("Counted", "0", key="a")
                            assert outbox._engine.held.keys()
                            raise ZeroDivisionError
                else:
                    async with outbox.transaction():
                        with pytest.raises(ZeroDivisionError):
                            async with outbox.transaction():
                                await outbox.write("Counted", "0", key="a")
                                assert outbox._engine.held.keys()
                                raise ZeroDivisionError
                assert not outbox._engine.held.keys()
            await write(outbox, 1)
            await handler.seen.reach(1)
            assert counted(outbox, "hot_enqueued") == 1
        assert of_key(handler.seen, "a") == [1]

    place.run(scenario)


def test_what_is_not_the_first_gives_its_slot_back_at_once(place: World) -> None:
    """Of an event that another process has left in the table nothing is known in memory, and the store is asked."""

    async def scenario() -> None:
        handler = Handler()
        async with unstarted(place) as stranger, serialized(place, handler, hot_queue_capacity=2) as outbox:
            await outbox.poll()  # the look of its start is over, and nobody tells it of the stranger's event
            await write(stranger, 1)
            async with outbox.transaction():
                for number in (2, 3, 4):
                    await outbox.write("Counted", str(number), key="a")
                    assert outbox._engine.lanes._reserved == 0
                assert not outbox._engine.held.keys()
            await handler.seen.reach(4)
            assert counted(outbox, "hot_enqueued") == 0
        assert of_key(handler.seen, "a") == [1, 2, 3, 4]

    place.run(scenario)


# ---------------------------------------------------------------- partitions


def gives_away(outbox: Any, key: str) -> None:
    """The partition of a key is not this instance's any more."""
    engine, number = outbox._engine, partition_of(key)
    engine._fleet.follow(engine.ownership.giving({number: engine.ownership.epochs()[number]}))


def test_in_a_partition_that_is_not_owned_events_are_born_free(place: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler, heartbeat_interval=NEVER, stale_timeout="3h") as outbox:
            gives_away(outbox, "a")
            await write(outbox, 1)
            assert owners(place) == [False]
            assert counted(outbox, "hot_enqueued") == 0

    place.run(scenario)


def test_a_partition_that_is_lost_before_the_commit_starts_nothing(place: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with serialized(place, handler, heartbeat_interval=NEVER, stale_timeout="3h") as outbox:
            async with outbox.transaction():
                await outbox.write("Counted", "1", key="a")
                gives_away(outbox, "a")
            await place.until("SELECT count(*) = 1 FROM outbox_event WHERE locked_by IS NULL AND status = 0")
            assert counted(outbox, "hot_enqueued") == 1
            assert handler.tries == []

    place.run(scenario)


def test_a_partition_that_is_lost_takes_with_it_what_waits_in_the_hot_lane(place: World) -> None:
    async def scenario() -> None:
        handler = Held("sync")
        options = {"heartbeat_interval": NEVER, "stale_timeout": "3h", "worker_count": 1}
        async with handled_by(serialized(place, **options), handler) as outbox:
            await write(outbox, 1, key="b")
            await handler.began.wait()
            await write(outbox, 2)
            assert owners(place) == [True, True]
            gives_away(outbox, "a")
            await place.until("SELECT count(*) = 1 FROM outbox_event WHERE event_key = 'a' AND locked_by IS NULL")
            handler.goes_on.set()
            await handler.seen.reach(1)
        assert handler.seen == [("b", 1)]

    place.run(scenario)
