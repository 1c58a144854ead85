"""Promise 8: when a storm is over every key goes on soon, whatever happened to instances in it, and whoever is told to
end does."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from aftercommit.events.claims import partition_of
from tests.promises.harness import Process
from tests.promises.ordered import OrderedFleet
from tests.promises.waiting import pause, until

#: How many instances the storm keeps alive.
SIZE = 4

#: In seconds. After the last fault a key waits for silence to be noticed, for partitions to be taken and for leases to
#: run out, which is three of these.
TIMES = {
    "lock_timeout": 1.0,
    "heartbeat_interval": 0.2,
    "stale_timeout": 2.0,
    "rebalance_interval": 0.3,
    "poll_interval": 0.1,
    "drain_timeout": 1.0,
}

#: How long the first event of a key may wait for its end, and an instance for its own, while nobody takes the machine
#: away from them.
STANDS, ENDS = 10.0, 20.0

_UNFINISHED = (
    "SELECT event_id, event_key, status, attempts, abandoned, locked_by, lease_epoch, lease_until, available_at"
    " FROM outbox_event WHERE status <> 1 ORDER BY position"
)


class Storm:
    """Faults at random, one after the other without waiting for what comes of them, while others write."""

    def __init__(self, fleet: OrderedFleet, runtimes: list[str], *, seed: int) -> None:
        fleet.times = TIMES
        self.fleet = fleet
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self._runtimes = runtimes
        self._options = {
            "worker_count": self.chance.choice([1, 4]),
            "cold_queue_capacity": self.chance.choice([3, 20, 1000]),
            "batch_size": self.chance.choice([2, 50]),
        }
        self._alive: list[Process] = []
        self._stopped: dict[Process, float] = {}
        self._leaving: list[Process] = []
        self._writers: list[Process] = []

    @contextmanager
    def rages(self, seconds: float, *, at_most: float) -> Iterator[None]:
        """A fault at least that often; then what comes of it."""
        try:
            for _ in range(SIZE):
                self.join()
            self._write()
            ends = monotonic() + seconds
            while monotonic() < ends:
                self._anything()
                turn = monotonic() + self.chance.uniform(at_most / 4, at_most)
                while monotonic() < turn:
                    self._wake_up()
                    pause(0.02)
            yield
        finally:
            for pid in self._forked():
                os.kill(pid, signal.SIGKILL)

    def _write(self) -> None:
        """Each with keys of its own: transactions of a key never overlap."""
        for number, runtime in enumerate(self._runtimes):
            writer, keys = self.fleet.writer(runtime), [f"{number}-{key}" for key in range(30)]
            plan = {"at_least": 0, "seed": self.chance.random(), "together": 3, "pause": 0.02, "is_even": True}
            writer.send("write_keys", keys=keys, **plan)
            self._writers.append(writer)

    # -------------------------------------------------------- faults

    def _anything(self) -> None:
        running = [process for process in self._alive if process not in self._stopped]
        possible = [self.join] * (3 if len(self._alive) < SIZE else 0)
        if len(running) > 1:
            faults = [self.kill, self.stop, self.leave, self.hog]
            if self._runtimes == ["threads"] and len(self._forked()) < 2:
                faults.append(self.fork)
            possible += [lambda fault=each: fault(self.chance.choice(running)) for each in faults]
        self.chance.choice(possible or [self.join])()

    def _note(self, what: str, process: Process) -> None:
        self.faults[what] += 1
        self.fleet.journal.say("fault", what, process.pid)

    def join(self) -> None:
        runtime = self.chance.choice(self._runtimes)
        process = self.fleet.process(runtime, failures=0.1, slow=0.02, options=self._options)
        process.send("start_at_last")
        self._alive.append(process)
        self._note("joins", process)

    def kill(self, process: Process) -> None:
        self._note("killed", process)
        process.signal(signal.SIGKILL)
        self._alive.remove(process)

    def stop(self, process: Process) -> None:
        self._note("stopped", process)
        process.signal(signal.SIGSTOP)
        self._stopped[process] = monotonic() + self.chance.uniform(0.3, 4.0)

    def leave(self, process: Process) -> None:
        self._note("leaves", process)
        process.signal(signal.SIGTERM)
        self._alive.remove(process)
        self._leaving.append(process)

    def hog(self, process: Process) -> None:
        self._note("hogs", process)
        process.send("hog", seconds=self.chance.uniform(0.3, 3.0))

    def fork(self, process: Process) -> None:
        """Another instance, which has all that the first one has in memory and open."""
        self._note("forks", process)
        process.send("fork")

    def _forked(self) -> list[int]:
        return [line.number for line in self.fleet.journal.lines("fault") if line.what == "forked"]

    def _wake_up(self, *, all_of_them: bool = False) -> None:
        for process, at in list(self._stopped.items()):
            if all_of_them or monotonic() >= at:
                process.signal(signal.SIGCONT)
                self._note("goes on", process)
                del self._stopped[process]

    # -------------------------------------------------------- what comes of them

    def is_over(self) -> None:
        """No more faults, and no more events."""
        self._wake_up(all_of_them=True)
        self.fleet.open_gate()
        for writer in self._writers:
            writer.answer(60)
            writer.finish()

    def all_ended_that_left(self) -> None:
        """One that has not begun to listen to signals ends by the signal itself."""
        for process in self._leaving:
            try:
                assert process.wait(ENDS) in (0, -signal.SIGTERM), process.errors
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self._stacks(process)}") from None

    def every_key_goes_on(self) -> None:
        """Until everything is delivered. How long that takes is a matter of the machine; that the first event of a key
        stands where it is for long is not."""
        history = Histories(self.fleet)
        try:
            until(history.is_empty, what="the end of the backlog", timeout=120)
        except KeyStands as error:
            stacks = [f"{process.pid}: {self._stacks(process)}" for process in self._alive]
            raise AssertionError("\n".join([str(error), *self._surroundings(), *stacks])) from None

    def _stacks(self, process: Process) -> str:
        """Where its threads are, and all that it has said."""
        if not process.has_ended:
            process.signal(signal.SIGUSR1)
            pause(0.5)
        return process.errors[-5000:]

    def _surroundings(self) -> list[str]:
        table, now = self.fleet.fleet, self.fleet.fleet.table.now()
        lines = [f"{line.at:.2f} {line.what} {line.number}" for line in self.fleet.journal.lines("fault")]
        for row in table.rows("SELECT id, pid, heartbeat_at FROM outbox_instance"):
            lines.append(f"member {row['id']}, pid {row['pid']}, silent for {(now - row['heartbeat_at']) / 1e6:.2f} s")
        for row in table.rows("SELECT partition_no, owner, epoch, expires_at FROM outbox_partition"):
            left = None if row["expires_at"] is None else (row["expires_at"] - now) / 1e6
            lines.append(f"partition {row['partition_no']} of {row['owner']}, epoch {row['epoch']}, ends in {left} s")
        return lines


class KeyStands(Exception):
    """The first event of a key does not end."""


class Histories:
    """What the first unfinished event of each key went through, as far as looks have seen it."""

    def __init__(self, fleet: OrderedFleet) -> None:
        self._table = fleet.fleet
        self._lines: dict[str, list[str]] = {}
        self._last: dict[str, dict[str, Any]] = {}
        #: How many looks have found it there: a process that gets no time to run does not look, either.
        self._looks: Counter[tuple[str, str]] = Counter()

    def is_empty(self) -> bool:
        rows, now = self._table.rows(_UNFINISHED), self._table.table.now()
        heads = {row["event_key"]: dict(zip(row.keys(), row, strict=True)) for row in reversed(rows)}
        for key, head in heads.items():
            if self._last.get(key) != head:
                self._last[key] = head
                times = {name: (head[name] - now) / 1e6 for name in ("lease_until", "available_at") if head[name]}
                self._lines.setdefault(key, []).append(f"{monotonic():.2f} {head | times}")
            self._looks[key, head["event_id"]] += 1
            if self._looks[key, head["event_id"]] > STANDS / 0.05:
                place = f"{key} of partition {partition_of(key)} stands still"
                raise KeyStands("\n".join([place, *self._lines[key][-50:]]))
        pause(0.05)
        return not rows


def weathered(ordered: OrderedFleet, runtimes: list[str], *, seconds: float, at_most: float, seed: int) -> None:
    storm = Storm(ordered, runtimes, seed=seed)
    with storm.rages(seconds, at_most=at_most):
        storm.is_over()
        storm.all_ended_that_left()
        storm.every_key_goes_on()
        ordered.all_delivered_in_order()


@pytest.mark.parametrize(
    ("fleet", "runtime"), [("postgres", "threads"), ("mariadb", "asyncio"), ("sqlite", "threads")], indirect=["fleet"]
)
def test_promise_08_order_per_key_goes_on_after_a_storm(ordered: OrderedFleet, runtime: str) -> None:
    weathered(ordered, [runtime], seconds=2.5, at_most=0.3, seed=15)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("runtimes", [["threads"], ["asyncio"], ["threads", "asyncio"]], ids="+".join)
@pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis", "sqlite"], indirect=True)
def test_promise_08_order_per_key_goes_on_after_a_long_storm(ordered: OrderedFleet, runtimes: list[str]) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    weathered(ordered, runtimes, seconds=60.0, at_most=2.0, seed=seed)
