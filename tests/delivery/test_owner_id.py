"""A name for the leases of a program: readable in the table, and never taken for another's of the same name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support import Signal, World


class Slow:
    """A listener that waits to be let go."""

    def __init__(self) -> None:
        self.entered, self.release = Signal(), Signal()

    def __call__(self, event: Any) -> None:
        self.entered.set()
        self.release.wait_here()


def owner(world: World) -> str | None:
    ((found,),) = world.rows("SELECT locked_by FROM outbox_event")
    return found


def test_two_outboxes_of_one_name_never_settle_each_others_events(any_server_world: World) -> None:
    """Promise 4: the fence tells them apart, whoever has chosen the same name."""
    world = any_server_world

    async def scenario() -> None:
        slow = [Slow(), Slow()]
        outboxes = [world.outbox(owner_id="billing", wakeups=False, poll_interval="1h") for _ in slow]
        for outbox, listener in zip(outboxes, slow, strict=True):
            outbox.register("OrderPlaced", listener)
            await outbox.start()
        first, second = outboxes
        async with first.transaction():
            await first.write("OrderPlaced", {})
        await slow[0].entered.wait()
        assert owner(world) == first.owner_id

        world.change("UPDATE outbox_event SET lease_until = 0")
        await second.poll()
        await slow[1].entered.wait()
        assert owner(world) == second.owner_id

        slow[0].release.set()
        await first.drain()
        assert (await first.stats()).counters["lease_lost"] == 1
        assert owner(world) == second.owner_id, "not the first one's to settle"
        slow[1].release.set()
        await world.until_settled(1)
        await world.until_counted(second)
        assert (await second.stats()).counters["dispatch_success"] == 1

    world.run(scenario)


def test_a_chosen_name_begins_an_id_that_is_new_with_each_start(world: World) -> None:
    async def scenario() -> None:
        outbox, plain = world.outbox(owner_id="web-3.shop"), world.outbox()
        assert outbox.owner_id is None
        seen = set()
        for _ in range(2):
            await outbox.start()
            name, _, rest = outbox.owner_id.partition("/")
            assert (name, str(UUID(rest))) == ("web-3.shop", rest)
            seen.add(outbox.owner_id)
            await outbox.close()
            assert outbox.owner_id is None
        assert len(seen) == 2
        await plain.start()
        assert str(UUID(plain.owner_id)) == plain.owner_id

    world.run(scenario)
