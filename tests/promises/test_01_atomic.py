"""Promise 1: no row without the commit, no commit without the row; nothing is delivered that is not committed."""

from __future__ import annotations

import pytest

from aftercommit import EventEnvelope, EventStatus
from tests.conftest import in_transactions
from tests.support import Collector, World


class Deliberate(Exception):
    """Raised to roll back."""


def test_promise_01_atomic_an_event_comes_with_its_commit_and_goes_with_its_rollback(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        outbox.register("A", lambda event: seen.add(event.payload_json))
        async with outbox:
            with pytest.raises(Deliberate):
                async with outbox.transaction():
                    await outbox.write("A", '"undone"')
                    raise Deliberate
            async with outbox.transaction():
                await outbox.write_all([EventEnvelope.of_json("A", text) for text in ('"one"', '"two"')])
                assert world.rows() == [], "somebody else sees it before the commit"
            await world.until_settled(2)
        assert sorted(seen) == ['"one"', '"two"']
        assert len(world.rows()) == 2

    world.run(scenario)


@in_transactions
def test_promise_01_atomic_a_savepoint_takes_its_events_from_the_table_and_from_memory(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        outbox.register("A", lambda event: seen.add((event.payload_json, world.statuses())))
        async with outbox:
            async with outbox.transaction():
                await outbox.write("A", '"before"')
                with pytest.raises(Deliberate):
                    async with outbox.transaction():
                        await outbox.write("A", '"undone"')
                        raise Deliberate
                async with outbox.transaction():
                    await outbox.write("A", '"inside"')
                # The inner block has ended well, and the outer one may still be rolled back.
                assert seen == []
            await world.until_settled(2)
        assert sorted(text for text, _ in seen) == ['"before"', '"inside"']
        assert all(len(statuses) == 2 for _, statuses in seen), "a handler ran before its row was committed"
        assert world.statuses() == [EventStatus.DONE] * 2

    world.run(scenario)
