"""Effects exactly once: a process may be killed anywhere in the transaction of a handler."""

from __future__ import annotations

import signal
from typing import Any

from tests.conftest import in_transactions
from tests.handlers.effects_kit import Place, Say
from tests.promises.dying_handler import POINTS
from tests.promises.harness import Process
from tests.promises.nursery import Nursery
from tests.support import World


@in_transactions
def test_a_handler_that_is_killed_has_done_all_of_its_work_or_nothing(every_world: World, nursery: Nursery) -> None:
    """What was not committed is done by the next process; what was is not done again."""
    world, place = every_world, Place(every_world, "own")

    async def scenario() -> None:
        outbox = place.outbox()
        await outbox.create_schema()
        for number, point in enumerate(POINTS):
            assert killed(nursery, world, point, number) == -signal.SIGKILL
        assert place.effects() == [2], "only the last one had committed"
        kinds = world.rows("SELECT event_type, status FROM outbox_event ORDER BY position")
        assert sorted(map(tuple, kinds)) == [("A", 0), ("A", 0), ("A", 1), ("Next", 0)]

        async def handle(event: Any, say: Say) -> None:
            await say.insert(int(event.payload_json))
            await outbox.write("Next", {"of": int(event.payload_json)})

        place.handler(outbox, handle)
        outbox.register("Next", lambda event: None)
        world.change("UPDATE outbox_event SET lease_until = 0 WHERE status = 0")
        await outbox.drain()
        assert place.effects() == [0, 1, 2]
        assert [event.payload_json for event in place.called] == ["0", "1"]
        assert world.rows("SELECT count(*) FROM outbox_event WHERE status = 1")[0][0] == 2 * len(POINTS)

    place.run(scenario)


def killed(nursery: Nursery, world: World, point: str, number: int) -> int:
    spec = {
        "runtime": world.name,
        "folder": str(world.folder),
        "database": world.database,
        "url": world.url,
        "point": point,
        "number": number,
    }
    process = Process(nursery, "tests.promises.dying_handler", spec, world.folder / f"{point}.err", environment={})
    try:
        return process.wait(timeout=60)
    finally:
        process.put_away()
