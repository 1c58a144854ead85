"""What walking the protocol state by state has found, each as it happens to the real rooms."""

from __future__ import annotations

from typing import Any

from aftercommit.delivery.agenda import EVERYWHERE, THE_REST
from aftercommit.delivery.ownership import Ownership
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import Release
from tests.delivery.faulty import agenda_of, claimed, with_runtime
from tests.delivery.test_agenda import Clocked, looked
from tests.delivery.test_worker import AMPLE, Desk, Suspects
from tests.support import Collector, Signal, World


class Late(Suspects):
    """Counts a suspect, and answers when the lease is over."""

    def __init__(self, runtime: Any) -> None:
        super().__init__()
        self._runtime = runtime

    async def mark_suspect(self, lease: Any, count: int = 1) -> bool:
        clock = self._runtime.clock
        self._runtime.clock = lambda: clock() + 100.0
        return await super().mark_suspect(lease)


def test_a_suspect_whose_mark_was_answered_late_is_not_started(world: World) -> None:
    """Its lease is over, and another may have the row; and its mark is taken back, for it has killed nobody."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, seen.add, store=Late(runtime))
        row = desk.row(is_suspect=True, valid_for=60.0)
        assert desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(1)
        assert seen == []
        assert desk.outcome(row) == Release(was_marked=True)
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_suspect_that_is_given_up_after_its_mark_has_not_killed(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        seen, marking, go_on = Collector(), Signal(), Signal()

        class Slow(Suspects):
            async def mark_suspect(self, lease: Any, count: int = 1) -> bool:
                marking.set()
                await go_on.wait()
                return await super().mark_suspect(lease)

        desk = Desk(runtime, seen.add, store=Slow())
        row = desk.row(is_suspect=True)
        assert desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await marking.wait()
        desk.dispatcher.starts.is_giving_up = True
        go_on.set()
        await desk.ledger.entries.reach(1)
        assert desk.outcome(row) == Release(was_marked=True), "its mark is taken back"
        assert seen == []
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_gift_that_failed_brings_back_no_older_one(world: World) -> None:
    """A heartbeat that was asked under epoch 1 is answered after the partition was given, taken, and nearly given."""

    async def scenario(runtime: Any) -> None:
        ownership = Ownership(runtime)
        ownership.share()
        later = runtime.clock() + 1000
        ownership.found({5: 1}, before={}, deadline=later)
        before = ownership.epochs()
        ownership.giving({5: 1})
        ownership.took({5: 3})
        ownership.giving({5: 3})
        ownership.not_given({5: 3})
        ownership.found({5: 1}, before=before, deadline=later)
        assert not ownership.has(OrderKey(5, "k"))
        ownership.found({5: 3}, before={}, deadline=later)
        assert ownership.has(OrderKey(5, "k")), "the gift has not happened"

    with_runtime(world, scenario)


def test_other_looks_do_not_use_up_those_for_a_commit_that_nobody_announces(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        agenda = agenda_of(clocked)
        looked(agenda)
        agenda.expect(["an event"])
        for _ in range(20):
            agenda.add(EVERYWHERE)
            looked(agenda)
            agenda.found([])
        assert agenda.due_at == clocked.now + 0.005, "it is still looked for, when it was to be"
        clocked.now += 0.005
        looked(agenda)
        agenda.found([])
        assert agenda.due_at == clocked.now + 0.01
        clocked.now += 0.01
        looked(agenda)
        agenda.found(["an event"])
        assert agenda.due_at > clocked.now + 1000

    with_runtime(world, scenario)


def test_room_that_comes_of_rows_that_leave_is_told(world: World) -> None:
    """Nobody takes anything from a lane whose only key has stopped."""

    async def scenario(runtime: Any) -> None:
        room = Collector()
        desk = Desk(runtime, on_room=lambda: room.add(THE_REST), cold_queue_capacity=4)
        key = OrderKey(1, "k")
        rows = [claimed(runtime, order_key=key) for _ in range(5)]
        assert desk.dispatcher.enqueue_cold(*rows[:4])
        head = await desk.lanes.take()
        assert desk.dispatcher.enqueue_cold(rows[4])
        assert desk.dispatcher.room() == 0
        assert room == []
        assert len(desk.lanes.finished(head, goes_on=False)) == 4
        assert len(room) == 1

    with_runtime(world, scenario)
