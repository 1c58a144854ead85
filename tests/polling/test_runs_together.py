"""The run of a key is handed over whole: when its first event fails at once, nothing behind it is on its way yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventEnvelope, Fixed
from aftercommit.delivery.lanes import Lanes
from aftercommit.events.claims import Claim, Claimed
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import Release
from aftercommit.runtime.threads import ThreadRuntime
from tests.delivery.faulty import claimed, lanes_of, take_now, with_runtime
from tests.delivery.test_lanes_of_keys import A, B, Item
from tests.polling.test_poller import poller_of
from tests.promises.waiting import until
from tests.support import Collector, World


class Taker:
    """Keeps what it was given together, as long as there is room."""

    def __init__(self, *, takes: int) -> None:
        self.taken: list[tuple[Claimed, ...]] = []
        self._takes = takes

    def room(self) -> int:
        return 100

    def handle(self, *run: Claimed) -> bool:
        if len(self.taken) == self._takes:
            return False
        self.taken.append(run)
        return True


def row_of(runtime: Any, key: OrderKey | None) -> Claimed:
    row = claimed(runtime)
    return Claimed(row.event, row.lease, row.position, row.created_at, order_key=key)


@pytest.mark.parametrize("takes", [3, 2])
def test_events_of_one_key_are_taken_together_or_given_back_together(world: World, takes: int) -> None:
    async def scenario(runtime: Any) -> None:
        rows = [row_of(runtime, key) for key in (A, None, B, A, B, A)]
        taker = Taker(takes=takes)
        poller, ledger = poller_of(runtime, None, taker)
        poller._hand_over(Claim(rows))
        runs = [(rows[0], rows[3], rows[5]), (rows[1],), (rows[2], rows[4])]
        assert taker.taken == runs[:takes]
        given_back = [row.lease for run in runs[takes:] for row in run]
        assert [(holding.lease, outcome) for holding, outcome in ledger.entries] == [
            (lease, Release()) for lease in given_back
        ]

    with_runtime(world, scenario)


def test_a_run_that_does_not_fit_is_refused_whole() -> None:
    lanes: Lanes[Item] = lanes_of(ThreadRuntime(), cold=3)
    assert lanes.offer([Item(1, A), Item(2, A)])
    assert not lanes.offer([Item(3, B), Item(4, B)])
    assert lanes.offer([Item(5, B)])
    assert [take_now(lanes), take_now(lanes), take_now(lanes)] == [Item(1, A), Item(5, B), None]


def test_a_first_event_that_fails_at_once_is_not_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are done with whatever they have before the poller goes on to hand over."""
    world, seen = World("threads", tmp_path), Collector()

    def fail_once(event: EventEnvelope) -> None:
        seen.add(event.payload_json)
        if len(seen) == 1:
            raise RuntimeError("told to fail")

    offer = Lanes.offer

    def offer_slowly(lanes: Lanes[Any], holdings: Any) -> bool:
        is_taken = offer(lanes, holdings)
        until(lambda: lanes.is_quiet, what="workers that have nothing to do")
        return is_taken

    monkeypatch.setattr(Lanes, "offer", offer_slowly)

    async def scenario() -> None:
        outbox = world.outbox(ordered=True, retry_policy=Fixed("1ms"))
        outbox.register("Happened", fail_once)
        async with outbox.transaction():
            for number in range(4):
                await outbox.write("Happened", str(number), key="key")
        async with outbox:
            await world.until_settled(4)

    world.run(scenario)
    assert seen == ["0", "0", "1", "2", "3"]
