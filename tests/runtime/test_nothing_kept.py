"""An outbox that was closed and forgotten is gone, with all that it made."""

from __future__ import annotations

import gc
from collections import Counter
from types import FunctionType
from typing import Any

from tests.support import Collector, World


def test_nothing_of_a_closed_outbox_is_kept(world: World, colour: Any) -> None:
    """Its handlers close over it, as they do in programs."""

    async def life() -> None:
        outbox, seen = world.outbox(poll_interval="1h"), Collector()
        world._made.clear()  # nobody but this function has it

        @outbox.handler("Placed", timeout="20s")
        @colour
        def placed(payload: dict[str, Any]) -> None:
            seen.add((payload, outbox))

        async with outbox:
            async with outbox.transaction() as tx:
                tx.after_commit(lambda: seen.add(outbox))
                await outbox.write("Placed", {})
            await seen.reach(2)

    world.run(life)  # what a process keeps once and for all
    gc.collect()
    gc.freeze()  # what there is of other tests is not looked through each time: in a whole run that takes seconds
    before = ours()
    for _ in range(3):
        world.run(life)
    assert ours() - before == Counter()


def ours() -> Counter[str]:
    """How many objects there are of each class of the package, and how many functions of this test."""
    for _ in range(3):  # what is found the first time may have been holding more
        gc.collect()
    found = Counter[str]()
    for each in gc.get_objects():
        module = each.__module__ if isinstance(each, FunctionType) else type(each).__module__
        if str(module).startswith("aftercommit.") or module == __name__:
            found[each.__qualname__ if isinstance(each, FunctionType) else type(each).__qualname__] += 1
    return found
