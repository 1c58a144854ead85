"""A tail goes on exactly where the last one ended, whatever ended it."""

from __future__ import annotations

import gc
import os
import warnings
from collections import Counter
from pathlib import Path

import pytest

from aftercommit import EventEnvelope
from tests.conftest import other_database
from tests.servers import PrivatePostgres
from tests.support import Collector, Signal
from tests.tail.kit import SELDOM, TailWorld, write


def test_one_that_was_closed_in_the_middle_is_followed_by_one_that_delivers_the_rest(tail_world: TailWorld) -> None:
    """Also within a transaction; and what was overtaken by others is neither lost nor delivered with them again."""
    seen, is_in, may_go = Collector(), Signal(), Signal()

    def handler(event: EventEnvelope) -> None:
        number = int(str(event.payload_json))
        if number == 30:
            is_in.set()
            may_go.wait_here()
        seen.add(number)

    async def scenario() -> None:
        first, writer = tail_world.tail(worker_count=2, drain_timeout=0), tail_world.writer()
        first.handler("Happened", id="h")(handler)
        async with writer, writer.transaction():
            await writer.write_all([EventEnvelope.of_json("Happened", str(n)) for n in range(2000)])
        await first.start()
        await is_in.wait()
        await seen.reach(100)  # by the other worker
        may_go.set()
        await first.close()
        assert len(seen) < 2000
        second = tail_world.tail()
        second.handler("Happened", id="h")(handler)
        assert (await second.drain("60s")).is_complete
        assert Counter(seen) == Counter(range(2000))

    tail_world.run(scenario)


def test_a_handler_that_runs_on_after_close_keeps_its_event(threads_world: TailWorld) -> None:
    seen, is_in, may_go = Collector(), Signal(), Signal()

    async def scenario() -> None:
        tail, writer = threads_world.tail(worker_count=2, drain_timeout=0, lock_timeout="1h"), threads_world.writer()

        @tail.handler("Slow", id="slow")
        def slow(event: EventEnvelope) -> None:
            is_in.set()
            may_go.wait_here()
            seen.add("slow")

        await write(writer, 1, kind="Slow")
        await tail.start()
        await is_in.wait()
        await tail.close()
        second = threads_world.tail()
        second.handler("Slow", id="slow")(lambda event: seen.add("twice"))
        await second.drain("20s")
        assert seen == []
        (row,) = threads_world.rows()
        assert (row["status"], row["lease_epoch"]) == (0, 1)
        may_go.set()
        await seen.reach(1)

    threads_world.run(scenario)


def test_one_reads_at_a_time_and_others_stand_by(tail_world: TailWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aftercommit.tail.reader.STANDS_BY", 0.02)
    seen = Collector()

    async def scenario() -> None:
        first, second, writer = tail_world.tail(), tail_world.tail(), tail_world.writer()
        first.handler("Happened", id="h")(lambda event: seen.add(("first", event.payload_json)))
        second.handler("Happened", id="h")(lambda event: seen.add(("second", event.payload_json)))
        async with writer, second:
            async with first:
                await write(writer, 1)
                await seen.reach(1)
                await (first if seen[0][0] == "first" else second).drain("20s")
            await write(writer, 2)
            await seen.reach(2)
            await second.drain("20s")
        assert [payload for _, payload in seen] == ["1", "2"]
        assert seen[1][0] == "second"

    tail_world.run(scenario)


@pytest.mark.parametrize("immediate", [False, True], ids=["restart", "crash"])
@pytest.mark.parametrize("runtime", ["threads", "asyncio"])
def test_it_survives_a_restart_of_the_server(
    own_logical_postgres: PrivatePostgres, tmp_path: Path, runtime: str, *, immediate: bool
) -> None:
    """After a crash the server may have forgotten how far the slot was; the tail has not."""
    server, seen = own_logical_postgres, Collector()
    world = TailWorld(runtime, tmp_path, other_database(server.url, "postgres"), "own_tail")

    async def scenario() -> None:
        tail, writer = world.tail(interval="50ms"), world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail:
            await write(writer, *range(20))
            await tail.drain("20s")
            server.stop(immediate=immediate)
            server.start()
            world.somebody.close()
            await writer.close()
            await write(writer, *range(20, 30))
            await seen.reach(30)
            await tail.close()
        after = world.tail()
        after.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        assert (await after.drain("20s")).delivered == 0
        assert sorted(map(int, seen)) == list(range(30))

    world.run(scenario)


def test_a_tail_that_is_killed_delivers_nothing_twice_but_what_was_under_way(threads_world: TailWorld) -> None:
    """As the next one sees it: the mark says who read, so what he may have begun is begun with care, from the table."""
    seen = Collector()

    async def scenario() -> None:
        first, writer = threads_world.tail(interval=SELDOM), threads_world.writer()
        first.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with writer:
            await first.start()
            await write(writer, 1)
            await seen.reach(1)
            await first.drain("20s")
            reader = first._engine.reader
            await reader.stop()
            reading, reader._reading = reader._reading, None
            await reading.close()  # it says nothing more: as if it were killed
            await write(writer, 2, 3)
            second = threads_world.tail()
            second.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
            async with second:
                await seen.reach(3)
                await threads_world.until_settled(3)
        assert sorted(seen) == ["1", "2", "3"]
        assert [row["lease_epoch"] for row in threads_world.rows()] == [0, 2, 2]  # the last two were taken over

    threads_world.run(scenario)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_leaves_the_session_of_its_parent_alone(threads_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = threads_world.tail(), threads_world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail:
            await write(writer, 1)
            await seen.reach(1)
            await tail.drain("20s")
            with warnings.catch_warnings(action="ignore"):  # of threads that are not in the child
                child = os.fork()
            if child == 0:
                gc.collect()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            session = tail._engine.reader._reading
            await write(writer, 2)
            await seen.reach(2)
            assert tail._engine.reader._reading is session
        assert seen == ["1", "2"]

    threads_world.run(scenario)
