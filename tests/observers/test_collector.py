"""One process of all that export looks at the table for them; when it ends, another does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aftercommit import NoRetry, TableState
from aftercommit.ordering.collector import INTERVAL, Collector, Duty
from tests.observers.kit import Told
from tests.support import World

TURN = INTERVAL.total_seconds()


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def collector(outbox: Any, told: Told, clock: Clock) -> Collector:
    """The one of an outbox that is not started, on a clock of the test's."""
    await outbox.create_schema()
    engine = outbox._current()
    engine.runtime.clock = clock
    return Collector(engine.runtime, engine._store, engine.meter, outbox.config, owner=engine.owner)


def is_looking(told: Told) -> bool:
    return bool(told.tables) and told.tables[-1] is not None


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_one_of_two_looks_and_the_other_takes_over_when_it_falls_silent(world: World, ordered: bool) -> None:
    """No clock is compared: the second waits for three turns of its own without a word of the first."""

    async def scenario() -> None:
        first, second, clock = Told(), Told(), Clock()
        one = await collector(world.outbox(metrics=first, ordered=ordered), first, clock)
        two = await collector(world.outbox(metrics=second, ordered=ordered), second, clock)
        for _ in range(5):
            await one.work()
            await two.work()
            clock.now += TURN
        assert isinstance(first.tables[-1], TableState)
        assert len(first.tables) == len(first.beats) == len(second.beats) == 5
        assert second.tables == [], "it only says that it lives"
        await two.work()
        clock.now += TURN
        await two.work()
        assert second.tables == []
        clock.now += TURN
        await two.work()
        clock.now += TURN
        await two.work()
        assert is_looking(second)
        await one.work()
        assert not is_looking(first), "it has come back, and takes back what it said"
        await two.work()
        assert is_looking(second)

    world.run(scenario)


def test_who_ends_gives_the_duty_to_the_next_at_once(any_server_world: World) -> None:
    """On every server, with real outboxes: the first looks, is closed, and the second looks at its next turn."""
    world = any_server_world

    async def scenario() -> None:
        first, second = Told(), Told()
        one, two = world.outbox(metrics=first), world.outbox(metrics=second)
        one.register("A", lambda _: None)
        await one.start()
        await first.tables.reach(1)
        await two.start()
        await second.beats.reach(1)
        assert not is_looking(second)
        await one.close()
        assert first.tables[-1] is None
        assert first.ends == [None]
        two._engine.collector.call()
        await second.tables.reach(1)
        assert is_looking(second)
        await two.close()

    world.run(scenario)


def test_an_answer_that_was_lost_costs_the_duty_nothing(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        clock, lost = Clock(), Lossy(outbox._store.membership)
        mine = Duty(lost, "collector", "me", clock, 3 * TURN)
        assert await mine.is_mine()
        lost.loses = True
        with pytest.raises(ConnectionError):
            await mine.is_mine()
        lost.loses = False
        assert await mine.is_mine()
        assert not await Duty(lost.inner, "collector", "another", clock, 3 * TURN).is_mine()

    world.run(scenario)


class Lossy:
    """A membership that does what it is asked and may not say so."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.loses = inner, False

    async def hold(self, *words: str, **over: str) -> str:
        found = await self.inner.hold(*words, **over)
        if self.loses:
            raise ConnectionError("the answer is lost")
        return str(found)


def test_a_store_that_is_away_for_long_takes_the_figures_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then what is true, and another process may have the duty."""

    async def scenario() -> None:
        told, clock = Told(), Clock()
        outbox = world.outbox(metrics=told)
        looking = await collector(outbox, told, clock)
        await looking.work()

        async def away(*_: object, **__: object) -> str:
            raise ConnectionError("away")

        monkeypatch.setattr(outbox._store.membership, "hold", away)
        for expected in (1, 1, 1, 2):
            with pytest.raises(ConnectionError):
                await looking.work()
            assert len(told.tables) == expected
            clock.now += TURN
        assert told.tables[-1] is None
        assert len(told.beats) == 1

    world.run(scenario)


def test_the_figures_are_those_of_the_table(world: World) -> None:
    async def scenario() -> None:
        told, clock = Told(), Clock()
        outbox = world.outbox(metrics=told, ordered=True, retry_policy=NoRetry())
        handlers: dict[str, Callable[[object], object]] = {"Good": lambda _: None, "Bad": lambda _: 1 / 0}
        for name, function in handlers.items():
            outbox.handler(name, id=name)(function)
        async with outbox.transaction():
            await outbox.write("Good", "{}", key="a")
            await outbox.write("Bad", "{}", key="b")
            await outbox.write("Good", "{}", key="b")
        await outbox.drain()
        await outbox.pause(handler="Bad")
        await (await collector(outbox, told, clock)).work()
        (table,) = told.tables
        assert [pause.name for pause in table.paused] == ["Bad"]
        assert (table.backlog.new, table.backlog.dead, table.done, table.blocked_keys) == (1, 1, 1, 1)
        assert (table.partitions.total, table.partitions.maximum) == (1, 1)
        counts = [(each.event_type, each.new + each.retry, each.dead) for each in table.summary.types]
        assert counts == [("Bad", 0, 1), ("Good", 1, 0)]
        assert (table.cluster.total_instances, table.cluster.unassigned_partitions) == (0, 256)

    world.run(scenario)


def test_without_an_exporter_nobody_looks(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        assert outbox._current().collector is None

    world.run(scenario)
