"""A fleet that keeps order under fire: instances join, leave, die and freeze while others write."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from aftercommit.events.claims import PARTITION_COUNT
from tests.promises.harness import Process
from tests.promises.ordered import Member, OrderedFleet

#: Those that write.
WRITERS = ("threads", "asyncio")

#: One handler call in ten fails.
FAILURES = 0.1

#: Events in memory of an instance. Whoever takes them over runs one after the other: each may be what killed it.
HELD = 100


class Torture:
    """A fleet under fire while others write for it."""

    #: Instances that join take turns.
    runtimes: tuple[str, ...] = ("threads", "asyncio")

    def __init__(self, fleet: OrderedFleet, *, keys: int, seed: int, **options: object) -> None:
        self.fleet = fleet
        #: What instances are made with.
        self.spec: dict[str, Any] = {"failures": FAILURES, "options": {"cold_queue_capacity": HELD, **options}}
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
        for number, runtime in enumerate(WRITERS):
            writer = self.authors[number].process if self.authors else self.fleet.writer(runtime)
            size = {"at_least": at_least // len(WRITERS), "together": together, "pause": pause}
            writer.send("write_keys", keys=self._keys[number :: len(WRITERS)], seed=self.chance.random(), **size)
            self._writers.append(writer)

    def join(self) -> None:
        with self.fleet.taken_over():
            self.fleet.join(self.runtimes[self._joined % len(self.runtimes)], **self.spec)
        self._joined += 1
        self.faults["join"] += 1

    def join_authors(self) -> None:
        for _ in self.runtimes:
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
