"""Promise 8: when a storm is over, every event is delivered soon, whatever happened to instances in it."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from time import monotonic
from typing import Any

import pytest

from aftercommit.events.claims import partition_of
from tests.promises.harness import Process
from tests.promises.ordered import OrderedFleet
from tests.promises.waiting import pause, until

#: How many instances the storm keeps alive.
SIZE = 4

#: In seconds: leases and silence are over soon, polls come often.
TIMES = {
    "lock_timeout": 1.0,
    "heartbeat_interval": 0.2,
    "stale_timeout": 2.0,
    "rebalance_interval": 0.3,
    "poll_interval": 0.1,
}

#: How long an event may wait after the last fault: for the silence of the dead to be noticed, for their partitions and
#: leases, and for the suspects of a whole instance, on a machine that has others to serve.
CALM_AFTER = 12.0

#: How long an instance may take to end.
ENDS_WITHIN = 15.0


class Storm:
    """Faults at random, one after the other without waiting for what comes of them, while others write."""

    def __init__(self, fleet: OrderedFleet, runtimes: list[str], *, seed: int, keys: int = 40) -> None:
        fleet.times = TIMES
        self.fleet = fleet
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self._runtimes = runtimes
        self._slow = self.chance.choice([0.0, 0.02, 0.1])
        self._options = {
            "worker_count": self.chance.choice([1, 4, 16]),
            "cold_queue_capacity": self.chance.choice([3, 20, 1000]),
            "batch_size": self.chance.choice([2, 50]),
            "lock_timeout": self.chance.choice([1.0, 3.0]),
            "stop_on_first_failure": self.chance.random() < 0.7,
        }
        self._keys = [f"key-{number}" for number in range(keys)]
        self._alive: list[Process] = []
        self._stopped: list[tuple[float, Process]] = []
        self._leaving: list[tuple[float, Process]] = []
        self._writers: list[Process] = []
        self.endings: list[float] = []

    def begins(self) -> None:
        for _ in range(SIZE):
            self.join()
        for number, runtime in enumerate(self._runtimes):
            writer = self.fleet.writer(runtime)
            writer.send(
                "write_keys",
                keys=self._keys[number :: len(self._runtimes)],
                at_least=0,
                seed=self.chance.random(),
                together=int(os.environ.get('STORM_TOGETHER', '6')),
                pause=0.02,
                is_even=True,
            )
            self._writers.append(writer)

    def rages(self, seconds: float, *, least: float = 0.5, most: float = 2.0) -> None:
        ends = monotonic() + seconds
        while monotonic() < ends:
            self.anything()
            turn = monotonic() + self.chance.uniform(least, most)
            while monotonic() < turn:
                self._look_after()
                pause(0.02)

    def anything(self) -> None:
        """Of the instances that run; never fewer than two, never more than four."""
        running = self._running()
        possible = [self.join] * (3 if len(self._alive) < SIZE else 0)
        possible += [self.kill, self.stop, self.leave, self.hog] * (len(running) > 1)
        possible += [self.fork] * (self._runtimes == ["threads"] and len(self.forked()) < 2)
        self.chance.choice(possible or [self.join])()

    def _running(self) -> list[Process]:
        stopped = [process for _, process in self._stopped]
        return [process for process in self._alive if process not in stopped]

    def _somebody(self) -> Process:
        return self.chance.choice(self._running())

    def _note(self, what: str, process: Process) -> None:
        self.faults[what] += 1
        self.fleet.journal.say("fault", what, process.pid)

    def join(self) -> None:
        process = self.fleet.process(
            self.chance.choice(self._runtimes), failures=0.1, slow=self._slow, options=self._options
        )
        process.send("start")
        self._alive.append(process)
        self._note("joins", process)

    def kill(self) -> None:
        process = self._somebody()
        self._note("killed", process)
        process.signal(signal.SIGKILL)
        self._alive.remove(process)

    def stop(self) -> None:
        process = self._somebody()
        self._note("stopped", process)
        process.signal(signal.SIGSTOP)
        self._stopped.append((monotonic() + self.chance.uniform(0.3, 5.0), process))

    def leave(self) -> None:
        process = self._somebody()
        self._note("leaves", process)
        process.signal(signal.SIGTERM)
        self._alive.remove(process)
        self._leaving.append((monotonic(), process))

    def hog(self) -> None:
        process = self._somebody()
        self._note("hogs", process)
        process.send("hog", seconds=self.chance.uniform(0.3, 4.0))

    def fork(self) -> None:
        """Another instance that has all the memory and descriptors of the first one."""
        process = self._somebody()
        self._note("forks", process)
        process.send("fork")

    def forked(self) -> list[int]:
        return [line.number for line in self.fleet.journal.lines("fault") if line.what == "forked"]

    def _look_after(self) -> None:
        """Whoever has been stopped for long enough goes on; whoever leaves has to end."""
        now = monotonic()
        for until_then, process in list(self._stopped):
            if now >= until_then:
                self._goes_on(until_then, process)
        for since, process in list(self._leaving):
            if process.has_ended:
                self.endings.append(now - since)
                self._leaving.remove((since, process))
                assert process.wait() in (0, -signal.SIGTERM), process.errors  # the latter before it listens to signals
            elif now - since > ENDS_WITHIN:
                raise AssertionError(f"{process.pid} did not end: {self._stacks(process)}")

    def _goes_on(self, until_then: float, process: Process) -> None:
        process.signal(signal.SIGCONT)
        self._note("goes on", process)
        self._stopped.remove((until_then, process))

    def _stacks(self, process: Process) -> str:
        """Where its threads are."""
        process.signal(signal.SIGUSR1)
        pause(0.5)
        return process.errors

    def is_over(self) -> int:
        """No more faults; how many events were written."""
        for each in list(self._stopped):
            self._goes_on(*each)
        self.fleet.open_gate()
        total = sum(sum(writer.answer(60).values()) for writer in self._writers)
        for writer in self._writers:
            writer.finish()
        return total

    def until_delivered(self, total: int) -> float:
        """Everything is delivered, and no key stands still for long meanwhile; else all that is known of it. How long
        it took, and how long the slowest head stood."""
        seen: dict[str, list[str]] = {}
        last: dict[str, Any] = {}
        since: dict[tuple[str, str], float] = {}
        begun = monotonic()
        self.slowest = 0.0

        def is_delivered() -> bool:
            self._look_after()
            rows = self.fleet.fleet.rows(
                "SELECT event_id, event_key, position, status, attempts, abandoned, locked_by, lease_epoch, lease_until,"
                " available_at FROM outbox_event WHERE status <> 1 ORDER BY position"
            )
            now, here = self.fleet.fleet.table.now(), monotonic()
            heads = {row["event_key"]: row for row in reversed(rows)}
            for key, row in heads.items():
                shown = {name: row[name] for name in row.keys()}
                if last.get(key) != shown:
                    last[key] = shown
                    text = dict(shown, partition=partition_of(key))
                    for name in ("lease_until", "available_at"):
                        if text[name] is not None:
                            text[name] = f"{(text[name] - now) / 1e6:+.2f}"
                    seen.setdefault(key, []).append(f"{here - begun:.2f} {text}")
                stands = here - since.setdefault((key, shown["event_id"]), here)
                self.slowest = max(self.slowest, stands)
                if stands > CALM_AFTER:
                    raise AssertionError("\n".join([f"{key} stands still:", *seen[key][-60:], *self._surroundings()]))
            pause(0.05)
            return not rows

        until(is_delivered, what="calm", timeout=60)
        assert self.fleet.fleet.rows("SELECT count(*) FROM outbox_event")[0][0] == total
        return monotonic() - begun

    def _surroundings(self) -> list[str]:
        table, now = self.fleet.fleet, self.fleet.fleet.table.now()
        rows = table.rows("SELECT id, pid, heartbeat_at FROM outbox_instance")
        lines = [f"member {row['id']} {row['pid']} silent {(now - row['heartbeat_at']) / 1e6:.2f}" for row in rows]
        for row in table.rows("SELECT partition_no, owner, epoch, expires_at FROM outbox_partition"):
            ends = None if row["expires_at"] is None else (row["expires_at"] - now) / 1e6
            lines.append(f"partition {row['partition_no']} {row['owner']} {row['epoch']} {ends}")
        lines += [f"{line.at:.2f} {line.what} {line.number}" for line in self.fleet.journal.lines("fault")]
        lines += [f"alive {process.pid}:\n{self._stacks(process)[-3000:]}" for process in self._alive]
        return lines


@pytest.mark.slow
@pytest.mark.parametrize("runtimes", ["threads", "asyncio", "both"])
@pytest.mark.parametrize("fleet", ["postgres", "mariadb", "sqlite"], indirect=True)
def test_promise_08_after_a_long_storm_nothing_waits(ordered: OrderedFleet, runtimes: str) -> None:
    seed = int(os.environ.get("STORM_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    storm = Storm(ordered, {"both": ["threads", "asyncio"]}.get(runtimes, [runtimes]), seed=seed)
    try:
        storm.begins()
        storm.rages(float(os.environ.get("STORM_SECONDS", "60")), least=float(os.environ.get("STORM_LEAST", "0.5")), most=float(os.environ.get("STORM_MOST", "2.0")))
        total = storm.is_over()
        took = storm.until_delivered(total)
    finally:
        for pid in storm.forked():
            os.kill(pid, signal.SIGTERM)
    print(total, storm._options, storm._slow, storm.faults, f"calm after {took:.1f} slowest {storm.slowest:.1f}", "ends", [f"{each:.1f}" for each in sorted(storm.endings)[-3:]])
    if storm._options["stop_on_first_failure"]:
        ordered.all_delivered_in_order()
