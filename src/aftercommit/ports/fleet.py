"""The fleet, as the walk sees it: who delivers which partition, and how its processes wake each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from aftercommit.events.order import FleetView, Instance


class Membership(Protocol):
    """The fleet in the database. All times are the database's; every method is one transaction."""

    async def join(self, instance: Instance) -> None:
        """Sign on; again is fine."""

    async def beat(self, instance_id: str, lasts: timedelta) -> dict[int, int] | None:
        """Be heard, and prolong what is owned, from now on, by `lasts`: the partitions that still are this instance's,
        with their epochs. None when the instance has no row any more and must join again."""
        ...

    async def view(self) -> FleetView: ...

    async def take(self, instance_id: str, partitions: dict[int, int], lasts: timedelta) -> dict[int, int]:
        """Own partitions that nobody owns or whose time is over, where the epoch is still the one that was seen. What
        was taken, with the new epochs, each raised by one; others may have been faster for the rest."""
        ...

    async def give(self, instance_id: str, partitions: dict[int, int]) -> None:
        """Own these no more, where owner and epoch still stand. Raises the epochs."""

    async def leave(self, instance_id: str) -> None:
        """Sign off: own nothing, be no member. Again is fine."""

    async def bury(self, silent_for: timedelta, *, but: str) -> list[str]:
        """Remove members that were silent for longer than that, whatever they own, all but one; who they were."""
        ...

    async def lags(self) -> dict[int, timedelta]:
        """The age of the oldest unfinished event of each partition that has one."""
        ...


class WakeupsUnavailable(Exception):
    """No messages can be received here, and why. It stays so; what they would have saved is done by looking."""


class Wakeups(Protocol):
    """Short messages between the processes of a fleet. Any may be lost; they only save waiting."""

    async def send(self, message: str) -> None:
        """On a connection of its own, never in a caller's transaction."""

    async def receive(self) -> list[str]:
        """Wait for messages. Nothing, when it was interrupted, and when it has only now begun to listen: what was said
        before was missed. Raises when the connection is broken, and the next call opens another; WakeupsUnavailable
        when no call ever will."""
        ...

    def interrupt(self) -> None:
        """Let the `receive` that waits return, or else the next one. From any thread."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""
