"""Order per key: what follows an event that the table has goes to the table as well, and comes in order from there."""

from __future__ import annotations

from aftercommit import EventEnvelope, Fixed
from tests.support import Collector, Signal
from tests.tail.kit import TailWorld, write

ORDERED = {"ordered": True}


def test_a_failed_event_holds_back_its_key_and_no_other(tail_world: TailWorld) -> None:
    seen, is_mended = Collector(), Signal()

    async def scenario() -> None:
        tail, writer = tail_world.tail(**ORDERED), tail_world.writer(**ORDERED)

        @tail.handler("Happened", id="h", retry=Fixed("20ms", max_attempts=1000))
        def h(event: EventEnvelope) -> None:
            if event.payload_json == "1" and event.key == "a" and not is_mended.is_set:
                raise ValueError("not yet")
            seen.add((event.key, event.payload_json))

        async with tail, writer:
            await write(writer, 1, 2, key="a")
            await tail_world.until_settled(1, status=2)
            await write(writer, 3, key="a")
            await write(writer, 1, 2, key="b")
            await seen.reach(2)
            assert seen == [("b", "1"), ("b", "2")]
            is_mended.set()
            await seen.reach(5)
            await tail.drain("20s")
            await write(writer, 4, key="a")
            await seen.reach(6)
        assert [payload for key, payload in seen if key == "a"] == ["1", "2", "3", "4"]
        last = tail_world.rows("SELECT lease_epoch FROM outbox_event WHERE event_key = 'a' ORDER BY position DESC")[0]
        assert last["lease_epoch"] == 0  # from the log again, once the table has nothing of the key

    tail_world.run(scenario)


def test_a_dead_event_blocks_its_key_until_it_is_replayed(tail_world: TailWorld) -> None:
    seen, is_mended = Collector(), Signal()

    async def scenario() -> None:
        tail, writer = tail_world.tail(**ORDERED), tail_world.writer(**ORDERED)

        @tail.handler("Happened", id="h", retry=Fixed("1ms", max_attempts=1))
        def h(event: EventEnvelope) -> None:
            if event.payload_json == "1" and not is_mended.is_set:
                raise ValueError("not yet")
            seen.add(event.payload_json)

        async with tail, writer:
            await write(writer, 1, key="a")
            await tail_world.until_settled(1, status=3)
            await write(writer, 2, 3, key="a")
            assert (await tail.drain("20s")).is_complete
            assert seen == []
            (dead,) = await tail.dead.query()
            is_mended.set()
            await tail.dead.replay(dead.event_id)
            await seen.reach(3)
        assert seen == ["1", "2", "3"]

    tail_world.run(scenario)


def test_a_delayed_event_holds_its_key(tail_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(**ORDERED), tail_world.writer(**ORDERED)
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail, writer:
            await write(writer, 1, key="a", deliver_after="300ms")
            await write(writer, 2, key="a")
            await seen.reach(2)
        assert seen == ["1", "2"]

    tail_world.run(scenario)


def test_events_of_a_key_never_run_side_by_side(tail_world: TailWorld) -> None:
    seen, running, together = Collector(), set[str](), list[str]()

    async def scenario() -> None:
        tail, writer = tail_world.tail(worker_count=8, **ORDERED), tail_world.writer(**ORDERED)

        @tail.handler("Happened", id="h")
        def h(event: EventEnvelope) -> None:
            key = str(event.key)
            if key in running:
                together.append(key)
            running.add(key)
            seen.add((key, int(str(event.payload_json))))
            running.discard(key)

        async with writer, tail:
            for start in range(0, 600, 60):
                async with writer.transaction():
                    await writer.write_all(
                        [
                            EventEnvelope.of_json("Happened", str(n)).replace(key=f"k{n % 7}")
                            for n in range(start, start + 60)
                        ]
                    )
            assert (await tail.drain("60s")).is_complete
        assert together == []
        for key in {key for key, _ in seen}:
            mine = [n for k, n in seen if k == key]
            assert mine == sorted(mine)
        assert len(seen) == 600

    tail_world.run(scenario)
