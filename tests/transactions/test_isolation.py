"""Tasks and threads beside each other: each row is in the transaction of the one who wrote it."""

from __future__ import annotations

from typing import Any

from tests.support import Collector, World
from tests.transactions.kit import Deliberate, all_at_once, free_slots, step_aside

TASKS = 100


def test_of_a_hundred_at_once_half_roll_back_and_nobody_takes_anothers_event(world: World) -> None:
    """F09: over two databases, so that transactions really overlap; each with an inner block."""

    async def scenario() -> None:
        seen = Collector()
        left = world.outbox(hot_queue_capacity=4 * TASKS, poller_enabled=False)
        right = world.outbox(f"sqlite:///{world.folder}/right.db", hot_queue_capacity=4 * TASKS, poller_enabled=False)
        for outbox in (left, right):
            outbox.register("T", seen.add)
            await outbox.start()
            async with outbox.transaction() as tx:
                await tx.execute("CREATE TABLE business (number INTEGER)")

        async def change(outbox: Any, number: int) -> None:
            async with outbox.transaction() as tx:
                await tx.execute("INSERT INTO business VALUES (?)", (number,))
                await step_aside(world)
                await outbox.write("T", str(number))
                await step_aside(world)
                async with outbox.transaction():
                    await outbox.write("T", str(number), key=number)
                    await step_aside(world)
                if number % 2:
                    raise Deliberate

        async def one(number: int) -> None:
            try:
                await change(left if number % 4 < 2 else right, number)
            except Deliberate:
                assert number % 2

        await all_at_once(world, [lambda number=number: one(number) for number in range(TASKS)])

        kept = [number for number in range(TASKS) if number % 2 == 0]
        await seen.reach(2 * len(kept))
        other = World(world.name, world.folder)
        other.path = world.folder / "right.db"
        for side, outbox, numbers in (
            (world, left, [number for number in kept if number % 4 < 2]),
            (other, right, [number for number in kept if number % 4 >= 2]),
        ):
            await side.until_settled(2 * len(numbers))
            business = sorted(row[0] for row in side.rows("SELECT number FROM business"))
            events = sorted(int(row["payload"]) for row in side.rows())
            assert business == numbers
            assert events == sorted(numbers * 2)
            assert free_slots(outbox) == 4 * TASKS
        assert sorted(int(event.payload_json) for event in seen) == sorted(kept * 2)

    world.run(scenario)
