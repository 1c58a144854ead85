"""Promise 8: order per key while instances come, go, die and freeze, and handlers fail."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from aftercommit.events.claims import PARTITION_COUNT
from tests.promises.harness import Process
from tests.promises.ordered import BUSY, Member, OrderedFleet

RUNTIMES = ["threads", "asyncio"]

#: One handler call in ten fails.
FAILURES = 0.1

#: In the long form.
EVENTS, KEYS = 200_000, 1000

#: Events in memory of an instance. Whoever takes them over runs one after the other: each may be what killed it.
HELD = 100


class Torture:
    """A fleet under fire while others write for it."""

    def __init__(self, fleet: OrderedFleet, *, keys: int, seed: int, **options: object) -> None:
        self.fleet = fleet
        self.options = {"cold_queue_capacity": HELD, **options}
        #: Instances that write for themselves, and are spared: what they have written is known in the end.
        self.authors: list[Member] = []
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self._keys = [f"key-{number}" for number in range(keys)]
        self._writers: list[Process] = []
        self._joined = 0

    def write(self, *, at_least: int, together: int, pause: float) -> None:
        """Two processes, each with keys of its own: transactions of a key never overlap. They deliver nothing, unless
        there are instances that write."""
        for number, runtime in enumerate(RUNTIMES):
            writer = self.authors[number].process if self.authors else self.fleet.writer(runtime)
            size = {"at_least": at_least // len(RUNTIMES), "together": together, "pause": pause}
            writer.send("write_keys", keys=self._keys[number :: len(RUNTIMES)], seed=self.chance.random(), **size)
            self._writers.append(writer)

    def join(self) -> None:
        with self.fleet.taken_over():
            self.fleet.join(RUNTIMES[self._joined % 2], failures=FAILURES, options=self.options)
        self._joined += 1
        self.faults["join"] += 1

    def join_authors(self) -> None:
        for _ in RUNTIMES:
            self.join()
            self.authors.append(self.fleet.members[-1])

    def leave(self) -> None:
        with self.fleet.taken_over():
            self.fleet.leave(self._somebody())
        self.faults["leave"] += 1

    def kill(self) -> None:
        with self.fleet.taken_over():
            self.fleet.kill(self._somebody())
        self.faults["kill"] += 1

    def freeze(self) -> None:
        with self.fleet.frozen(self._somebody()), self.fleet.taken_over():
            pass
        self.fleet.until_owned(self.fleet.members)
        self.faults["freeze"] += 1

    def kill_beside_a_frozen_one(self) -> None:
        with self.fleet.frozen(self._somebody()), self.fleet.taken_over():
            self.fleet.kill(self._somebody())
        self.fleet.until_owned(self.fleet.members)
        self.faults["kill beside a frozen one"] += 1

    def _somebody(self) -> Member:
        """One that has something to do, if there is one."""
        others = [member for member in self.fleet.members if member not in self.authors]
        busy = [member for member in others if self.fleet.held_by(member)]
        return self.chance.choice(busy or others)

    def anything(self) -> None:
        """From one to four instances."""
        size = len(self.fleet.members) - len(self.authors)
        possible = [self.join] * (size < 4) + [self.leave, self.kill, self.freeze] * (size > 1)
        possible += [self.kill_beside_a_frozen_one] * (size > 2)
        self.chance.choice(possible)()

    def has_delivered(self, count: int) -> bool:
        return self.fleet.fleet.table.somebody.has_settled(count)

    def end(self, *, timeout: float) -> int:
        """Until everything is delivered; how many there were."""
        self.fleet.open_gate()
        written: dict[str, int] = {}
        for writer in self._writers:
            written |= writer.answer(timeout)
            if not self.authors:
                writer.finish()
        total = sum(written.values())
        self.fleet.until_settled(total, timeout=timeout)
        assert {key: list(range(count)) for key, count in written.items() if count} == self.fleet.written()
        return total

    def every_partition_has_one_owner_that_lives(self) -> None:
        cluster = self.fleet.cluster()
        assert cluster.unowned == ()
        assert {member.id for member in cluster.members} == {member.id for member in self.fleet.members}
        assert not any(member.is_stale for member in cluster.members)
        assert sum(len(member.partitions) for member in cluster.members) == PARTITION_COUNT

    def handlers_have_failed(self, total: int) -> None:
        """Of the attempts that were reported, and a dead instance has reported none, about a tenth."""
        failed = self.fleet.fleet.rows("SELECT sum(attempts) FROM outbox_event")[0][0]
        assert failed > total * FAILURES / 2


@pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis"], indirect=True)
def test_promise_08_order_per_key_survives_instances_that_join_leave_die_and_freeze(ordered: OrderedFleet) -> None:
    torture = Torture(ordered, keys=100, seed=8)
    torture.join()
    torture.write(at_least=3000, together=8, pause=0.02)
    torture.join()
    torture.join()
    torture.kill()
    torture.freeze()
    torture.leave()
    torture.join()
    torture.kill()
    total = torture.end(timeout=60)

    torture.every_partition_has_one_owner_that_lives()
    ordered.all_delivered_in_order()
    torture.handlers_have_failed(total)
    assert len({effect.pid for effect in ordered.effects.all()}) > 2, "several instances have delivered"


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
def test_promise_08_order_per_key_survives_when_instances_deliver_what_they_write(ordered: OrderedFleet) -> None:
    """serialize_keys: the first event of a key is born leased where its partition is owned, and partitions move."""
    torture = Torture(ordered, keys=100, seed=12, serialize_keys=True)
    torture.join_authors()
    torture.write(at_least=3000, together=8, pause=0.02)
    torture.join()
    torture.join()
    torture.kill()
    torture.freeze()
    torture.leave()
    torture.join()
    torture.kill()
    total = torture.end(timeout=60)

    torture.every_partition_has_one_owner_that_lives()
    ordered.all_delivered_in_order()
    torture.handlers_have_failed(total)
    for author in torture.authors:
        assert author.count("hot_enqueued") > 0, "the first events of keys have come from memory"
        assert author.count("cold_enqueued") > 0


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("fleet", "options"),
    [("postgres", {}), ("postgres", {"serialize_keys": True}), ("mariadb", {}), ("redis", {})],
    ids=["postgres", "postgres-serialized", "mariadb", "redis"],
    indirect=["fleet"],
)
def test_promise_08_order_per_key_survives_a_long_torture(ordered: OrderedFleet, options: dict[str, object]) -> None:
    ordered.times = BUSY
    ordered.open_gate()  # the writers stop as soon as they have written enough
    torture = Torture(ordered, keys=KEYS, seed=EVENTS, **options)
    if options:
        torture.join_authors()
    torture.join()
    torture.write(at_least=EVENTS, together=50, pause=0.05)
    while not torture.has_delivered(EVENTS * 9 // 10):
        torture.anything()
    total = torture.end(timeout=900)

    torture.every_partition_has_one_owner_that_lives()
    ordered.all_delivered_in_order()
    torture.handlers_have_failed(total)
    assert total >= EVENTS
    assert len(torture.faults) == 5
    assert min(torture.faults.values()) > 2, torture.faults
