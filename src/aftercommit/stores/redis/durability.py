"""How sure it is that the server keeps what it was given: what its settings say, and what is waited for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from aftercommit.errors import InvalidOption, StoreUnavailable
from aftercommit.stores.redis.link import Link
from aftercommit.stores.redis.scripts import Command

#: Milliseconds to wait for replicas and disks. Less than the time within which a server has to answer.
PATIENCE: Final = 5000

_SAID: Final = re.compile(r"(?P<how>wait|waitaof):(?P<first>\d+)(?::(?P<second>\d+))?")


@dataclass(frozen=True, slots=True)
class Durability:
    """`wait:n`: n replicas have it. `waitaof:1`: it is on the server's own disk; `waitaof:1:n`: on n replicas' too."""

    said: str = ""
    #: What is sent behind a write, on its connection.
    commands: tuple[Command, ...] = ()
    #: What has to come back.
    wanted: tuple[int, ...] = ()

    @classmethod
    def of(cls, said: str | None) -> Self:
        if not said:
            return cls()
        found = _SAID.fullmatch(said)
        if found is None or (found["how"] == "wait" and found["second"]) or int(found["first"]) < 1:
            raise _unknown(said)
        first, second = int(found["first"]), int(found["second"] or 0)
        if found["how"] == "wait":
            return cls(said, ((b"WAIT", first, PATIENCE),), (first,))
        if first > 1:
            raise _unknown(said)
        return cls(said, ((b"WAITAOF", first, second, PATIENCE),), (first, second))

    def check(self, replies: Sequence[Any], where: str) -> None:
        """Raise when too few have what was written. It is written all the same, and may yet be lost."""
        if not replies:
            return
        reply = replies[0]
        if isinstance(reply, Exception):  # it has lost its file, or its place as primary
            raise self._not_reached(where, str(reply)) from reply
        have = tuple(reply) if isinstance(reply, list) else (reply,)
        if any(has < wants for has, wants in zip(have, self.wanted, strict=True)):
            counts = f"{'/'.join(map(str, have))} instead of {'/'.join(map(str, self.wanted))}"
            raise self._not_reached(where, f"{counts} after {PATIENCE} ms")

    def _not_reached(self, where: str, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{where} has written it, but durability={self.said!r} was not reached: {why}",
            fix="check that the replicas are connected and keep up; the event may be there and be delivered",
        )

    async def look(self, link: Link, where: str, explain: Callable[[Exception], None]) -> tuple[str, ...]:
        """What people should know. Raises where the server can never do what is asked for."""
        commands: list[Command] = [(b"INFO",), (b"CONFIG", b"GET", b"save")]
        if self.commands:
            name, *counts, _ = self.commands[0]
            commands.append((name, *([0] * len(counts)), 1))
        info, save, *can = await link.call(*commands)
        facts = facts_of(info)
        if can and isinstance(can[0], Exception):
            raise InvalidOption(
                f"durability={self.said!r} is nothing that {where} can do ({can[0]})",
                fix="WAITAOF needs Redis 7.2; use wait:1, or leave it out",
            )
        self._refuse_what_cannot_be(facts, where)
        said = (what_a_restart_loses(facts, save, where), what_is_dropped(facts, where))
        return tuple(each for each in said if each is not None)

    def _refuse_what_cannot_be(self, facts: dict[str, str], where: str) -> None:
        if len(self.wanted) == 2 and facts.get("aof_enabled") == "0":
            raise InvalidOption(
                f"durability={self.said!r} waits for the append-only file, and {where} has none (appendonly no)",
                fix="set appendonly yes on the server, or leave durability out",
            )
        replicas = self.wanted[-1] if self.wanted else 0
        if replicas > int(facts.get("connected_slaves", replicas)):
            raise InvalidOption(
                f"durability={self.said!r} waits for {replicas} replicas, and {where} has {facts['connected_slaves']}",
                fix="connect replicas first, or ask for fewer",
            )


def _unknown(said: str) -> InvalidOption:
    return InvalidOption(f"durability is {said!r}", fix="use wait:1 (replicas), waitaof:1 (disk) or waitaof:1:1 (both)")


def facts_of(info: Any) -> dict[str, str]:
    """What INFO says, if it says anything; a server may forbid it."""
    if not isinstance(info, bytes):
        return {}
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def what_a_restart_loses(facts: dict[str, str], save: Any, where: str) -> str | None:
    """None where every write is kept on disk, or nothing is known of it."""
    if facts.get("aof_enabled") != "0":
        return None
    if save in ([b"save", b""], {b"save": b""}):  # as the two protocols say it
        return f"{where} keeps nothing on disk (appendonly no, no snapshots): a restart of it loses all events"
    return f"{where} keeps only snapshots (appendonly no): a restart of it loses the events since the last one"


def what_is_dropped(facts: dict[str, str], where: str) -> str | None:
    policy = facts.get("maxmemory_policy", "noeviction")
    # Keys of an outbox have no expiry, so volatile-… drops none of them; and without a limit nothing is ever dropped.
    if not policy.startswith("allkeys") or facts.get("maxmemory") == "0":
        return None
    return f"{where} drops any keys when its memory is full (maxmemory-policy {policy}), events among them"
