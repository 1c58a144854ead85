"""A fleet that keeps order: instances that join, leave, die and freeze, and the checker of what they did."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aftercommit import Outbox
from aftercommit.events.claims import ALL_PARTITIONS
from aftercommit.events.order import Cluster
from tests.promises.effects import effects_of, first_effects
from tests.promises.harness import Fleet, Process
from tests.promises.waiting import pause, until
from tests.redis_database import RedisDatabase

#: In seconds. Short, so that whatever happens to an instance is over within the test.
TIMES = {
    "lock_timeout": 1.0,
    "heartbeat_interval": 0.2,
    "stale_timeout": 2.0,
    "rebalance_interval": 0.3,
    "poll_interval": 0.2,
}

#: Longer, for a machine that has all hands full.
BUSY = {**TIMES, "lock_timeout": 3.0, "stale_timeout": 5.0, "heartbeat_interval": 0.5, "rebalance_interval": 1.0}

#: Whoever takes over has other keys to look at first, which may be many on a slow machine.
LONG_PATIENCE = 120.0

#: Nobody loses a lease or a partition because a machine is slow.
CALM = {**TIMES, "lock_timeout": 60.0, "stale_timeout": 60.0}


@dataclass(frozen=True)
class Member:
    """An instance that has joined."""

    process: Process
    #: Its id in the fleet, and the owner of its leases.
    id: str

    def tell(self, do: str, **arguments: Any) -> Any:
        return self.process.tell(do, **arguments)

    def count(self, counter: str) -> int:
        return int(self.tell("stats").get(counter, 0))

    def noticed(self) -> int:
        """How often it found that it had been taken for dead: marks that were refused, events that it dropped, and that
        it was no member any more. A mark that was on its way when it stopped may have been taken, and is not counted.
        """
        return self.count("lease_lost") + self.count("released") + self.process.errors.count("joins again")


class OrderedFleet:
    """The instances of one test, their tables, and everything that handlers did."""

    def __init__(self, fleet: Fleet, *, on_dead: str) -> None:
        self.fleet = fleet
        self.journal = fleet.journal
        self.on_dead = on_dead
        self.times = TIMES
        #: What an instance runs, and how it is told to begin.
        self.module, self.start = "instance", "start"
        self.members: list[Member] = []
        self._watcher = self._made(ordered=True, on_dead=on_dead)
        self._ice = fleet.folder / "ice"
        os.mkfifo(self._ice)
        self.effects = effects_of(fleet.table)
        self.effects.create(fleet.database)

    def close(self) -> None:
        """Whatever comes next on this database keeps no order, as most tests do."""
        self.fleet.end_processes()
        self._watcher.close()
        self._made().close()

    def _made(self, **order: Any) -> Outbox:
        """An outbox to which the tables belong now."""
        table = {"table": self.fleet.table.table} if self.fleet.database == "redis" else {}
        outbox = Outbox.writer_only(self.fleet.table.url, **table, **order)
        outbox.create_schema()
        return outbox

    # -------------------------------------------------------- who is there

    def process(self, runtime: str = "threads", *, birth: dict[str, Any] | None = None, **spec: Any) -> Process:
        """One that waits for orders."""
        order = {"ordered": True, "on_dead": self.on_dead, "max_abandoned": 100}
        options = {**self.times, **order, **spec.pop("options", {})}
        plain = {"handler": "both", "gate": None, "failures": 0.0, "obeys": False, "slow": 0.0}
        given = {**self.fleet.place(runtime), **plain, **spec, "options": options}
        return self.fleet.process(self.module, given, **(birth or {}))

    def join(self, runtime: str = "threads", **spec: Any) -> Member:
        process = self.process(runtime, **spec)
        member = Member(process, process.tell(self.start))
        self.members.append(member)
        self._note("joined", member)
        return member

    def writer(self, runtime: str = "threads", *, birth: dict[str, Any] | None = None) -> Process:
        """It owns nothing, delivers nothing, and wakes those who do."""
        process = self.process(runtime, birth=birth, handler=None, options={"poller_enabled": False})
        process.tell(self.start)
        return process

    def cluster(self) -> Cluster:
        return self._watcher.cluster()

    def owners(self) -> dict[int, str]:
        """Who owns each partition now, by the database's clock."""
        now = self.fleet.table.now()
        rows = self.fleet.rows("SELECT partition_no, owner FROM outbox_partition WHERE expires_at > ?", now)
        return {row["partition_no"]: row["owner"] for row in rows if row["owner"] is not None}

    def partitions_of(self, member: Member) -> set[int]:
        return {partition for partition, owner in self.owners().items() if owner == member.id}

    def until_owned(self, members: Collection[Member], timeout: float = 20.0) -> None:
        """Every partition is owned by one of these, and each of these owns some."""
        ids = {member.id for member in members}

        def is_owned() -> bool:
            owners = self.owners()
            return owners.keys() == ALL_PARTITIONS and set(owners.values()) == ids

        until(is_owned, what=f"partitions that are owned by {ids}", timeout=timeout)

    # -------------------------------------------------------- what happens to them

    def caught_delivering(self, member: Member) -> dict[str, int]:
        """Stop it while it holds leases on events; their epochs."""

        def held() -> dict[str, int]:
            member.process.signal(signal.SIGSTOP)
            if not (rows := self._held_for_good(member)):
                member.process.signal(signal.SIGCONT)
            return rows

        return until(held, what="an instance that holds events")

    def _held_for_good(self, member: Member) -> dict[str, int]:
        """What a stopped instance holds once the server has done all that it was asked for."""
        before, now = None, self.held_by(member)
        while before != now:
            pause(0.05)
            before, now = now, self.held_by(member)
        return now

    def held_by(self, member: Member) -> dict[str, int]:
        """Events that it has a lease on, with their epochs."""
        return self.fleet.table.somebody.held_by(member.id)

    def kill(self, member: Member) -> None:
        """In the middle of deliveries."""
        assert self.caught_delivering(member)
        self._note("killed", member)
        member.process.signal(signal.SIGKILL)
        assert member.process.wait() == -signal.SIGKILL
        assert self.held_by(member), "its leases are there, and nobody gives them back"
        self.members.remove(member)

    def leave(self, member: Member) -> None:
        """As a program does that was written with care: what it holds is given back."""
        self._note("leaves", member)
        member.process.signal(signal.SIGTERM)
        assert member.process.wait() == 0, member.process.errors
        assert not self.fleet.table.somebody.left_by(member.id)
        assert member.id not in self.owners().values()
        self.members.remove(member)

    @contextmanager
    def frozen(self, member: Member) -> Iterator[None]:
        """Stopped in the middle of deliveries until others have begun to take what it held; then it goes on, and finds
        that out."""
        noticed = member.noticed()
        held = self.caught_delivering(member)
        self._note("stopped", member)
        self.members.remove(member)
        yield
        until(
            lambda: held.items() - self.held_by(member).items(),
            what="others that take over its events",
            timeout=LONG_PATIENCE,
        )
        assert member.id not in self.owners().values()
        self._note("goes on", member)
        member.process.signal(signal.SIGCONT)
        until(lambda: member.noticed() > noticed, what="a stopped instance that finds out what it has lost")
        self.members.append(member)

    def _note(self, what: str, member: Member) -> None:
        self.journal.say("fault", what, member.process.pid)

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """After what happens here every partition has one owner that lives, within twice the stale time."""
        yield
        self.until_owned(self.members, timeout=2 * self.times["stale_timeout"])

    # -------------------------------------------------------- what is true

    def open_gate(self) -> None:
        self.fleet.open_gate()

    def thaw(self) -> None:
        """Whoever is frozen in a handler goes on."""
        os.close(os.open(self._ice, os.O_WRONLY | os.O_NONBLOCK))

    def entered(self, member: Member, key: str) -> list[int]:
        """The events of a key whose handlers an instance has called."""
        lines = self.journal.lines("enter")
        return [line.number for line in lines if (line.pid, line.what) == (member.process.pid, key)]

    def until_effects(self, key: str, numbers: list[int]) -> None:
        """The first effects of a key."""
        until(
            lambda: list(dict.fromkeys(self.effects.numbers(key))) == numbers,
            what=f"effects {numbers} of {key}",
        )

    def until_settled(self, count: int, timeout: float = 60.0) -> None:
        self.fleet.until_settled(count, timeout)

    def written(self) -> dict[str, list[int]]:
        """The events of each key in order of their commits: no two writers of a key overlap."""
        written: dict[str, list[int]] = {}
        for row in self.fleet.rows("SELECT event_key, payload FROM outbox_event ORDER BY position"):
            written.setdefault(row["event_key"], []).append(json.loads(row["payload"])["n"])
        return written

    def all_delivered_in_order(self) -> None:
        """The checker: nothing lost, nothing left, no first effect out of order, never two of a key in one process."""
        written, firsts = self.written(), first_effects(self.effects.all())
        for key, numbers in written.items():
            assert firsts.get(key, []) == numbers, self.history(key)
        assert firsts.keys() == written.keys()
        unfinished = "SELECT count(*) FROM outbox_event WHERE status <> 1 OR locked_by IS NOT NULL"
        assert self.fleet.rows(unfinished)[0][0] == 0
        if isinstance(self.fleet.table.somebody, RedisDatabase):
            self.fleet.table.somebody.check()
        self.never_two_at_once()

    def never_two_at_once(self) -> None:
        running: dict[tuple[int, str], int] = {}
        for line in self.journal.lines("enter", "leave"):
            place = (line.pid, line.what)
            if line.kind == "leave":
                running.pop(place, None)
                continue
            assert place not in running, f"{line.number} begins while {running[place]} runs; {self.history(line.what)}"
            running[place] = line.number

    def history(self, key: str) -> str:
        """All that is known of a key, and what happened to instances meanwhile."""
        effects = [f"{effect.number} by {effect.pid}" for effect in self.effects.all() if effect.key == key]
        lines = [
            f"{line.at:.3f} {line.number} {line.what}"
            if line.kind == "fault"
            else f"{line.at:.3f} {line.pid} {line.kind} {line.number}"
            for line in self.journal.lines("enter", "leave", "fault")
            if line.kind == "fault" or line.what == key
        ]
        return "\n".join([f"the history of {key}", "effects:", *effects, "journal:", *lines])
