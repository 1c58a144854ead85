"""One process writes and another delivers: the writer tells the worker, or the worker looks often for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit.polling.poller import Pace
from tests.support import Collector, World


async def pair(world: World, **options: Any) -> tuple[Any, Any, Collector]:
    """Started: one that only writes, and one whose poller sleeps for an hour."""
    seen = Collector()
    web = world.outbox(wiring="writer_only", **options)
    worker = world.outbox(poll_interval="1h", **options)
    worker.register("Told", lambda event: seen.add(int(event.payload_json)))
    await web.start()
    await worker.start()
    return web, worker, seen


async def write(outbox: Any, number: int, **options: Any) -> None:
    async with outbox.transaction():
        await outbox.write("Told", str(number), **options)


def counted(outbox: Any, name: str) -> int:
    return int(outbox._engine.meter.counts().get(name, 0))


def test_what_a_process_writes_that_delivers_nothing_is_delivered_by_another_at_once(any_server_world: World) -> None:
    """A NOTIFY comes after each commit, or the poller looks more often while it finds something."""

    async def scenario() -> None:
        web, worker, seen = await pair(any_server_world)
        await worker.poll()
        for number in range(4):  # the first looks belong to the start
            await write(web, number)
            if number == 0 and any_server_world.database != "postgres":
                await worker.poll()
            await seen.reach(number + 1)
        assert seen == [0, 1, 2, 3]
        if any_server_world.database == "postgres":
            assert counted(web, "wakeups_sent") >= 1
            assert counted(worker, "wakeups_received") >= 1

    any_server_world.run(scenario)


def test_an_embedded_store_is_looked_at_more_often_while_something_is_found(world: World) -> None:
    async def scenario() -> None:
        web, worker, seen = await pair(world)
        await write(web, 0)
        await worker.poll()
        for number in (1, 2):
            await write(web, number)
            await seen.reach(number + 1)

    world.run(scenario)


def test_a_delayed_event_of_another_process_comes_when_it_is_due(any_server_world: World) -> None:
    if any_server_world.database != "postgres":
        pytest.skip("only PostgreSQL has LISTEN and NOTIFY")

    async def scenario() -> None:
        web, _, seen = await pair(any_server_world)
        for number in range(3):
            await write(web, number)
            await seen.reach(number + 1)
        await write(web, 3, deliver_after=timedelta(milliseconds=50))
        await seen.reach(4)

    any_server_world.run(scenario)


def test_without_wakeups_nobody_listens_and_nobody_is_told(any_server_world: World) -> None:
    if any_server_world.database != "postgres":
        pytest.skip("only PostgreSQL has LISTEN and NOTIFY")

    async def scenario() -> None:
        web, worker, seen = await pair(any_server_world, wakeups=False)
        names = {service.name for outbox in (web, worker) for service in outbox._engine._services()}
        assert not names & {"aftercommit-announcer", "aftercommit-listener"}
        await write(web, 0)
        await worker.poll()
        await seen.reach(1)
        assert counted(web, "wakeups_sent") == 0

    any_server_world.run(scenario)


def test_the_pace_is_quick_after_a_find_and_slows_down_to_the_interval() -> None:
    def ms(*milliseconds: int) -> list[timedelta]:
        return [timedelta(milliseconds=each) for each in milliseconds]

    pace = Pace(*ms(100, 400, 20), batch_size=100)
    assert pace.interval == timedelta(milliseconds=100)
    assert [pace.after(count) for count in (1, 0, 0, 0, 0, 0, 50)] == ms(20, 40, 80, 100, 200, 400, 20)
    hasty = Pace(*ms(10, 40, 20), batch_size=100)
    assert [hasty.after(count) for count in (50, 1, 0)] == ms(10, 20, 40), "it is quick enough already"
    assert [pace.after(count, is_own=True) for count in (1, 50)] == ms(20, 20), "which is left as it is"
    rested = Pace(*ms(100, 400, 20), batch_size=100)
    assert [rested.after(0), rested.after(0), rested.after(1, is_own=True)] == ms(200, 400, 100)


def test_what_a_process_writes_for_itself_makes_its_poller_no_quicker(world: World) -> None:
    """It is told of each; only others' events have to be looked for."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h", hot_path=False)
        outbox.register("Told", lambda event: seen.add(int(event.payload_json)))
        await outbox.start()
        await outbox.poll()  # the look of the start is over: it might see a row before it is told of it
        for number in range(3):
            await write(outbox, number)
            await seen.reach(number + 1)
        assert outbox._engine.poller.interval == timedelta(hours=1)

    world.run(scenario)
