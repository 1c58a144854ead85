"""Pausing and resuming handlers and event types, as a part of either outbox."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from os import getpid
from platform import node

from aftercommit.base import OutboxBase
from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration
from aftercommit.events.names import name_of
from aftercommit.events.pauses import Pause, PauseKey, PauseKind
from aftercommit.events.redact import redact
from aftercommit.ports import Pauses
from aftercommit.runtime.threads import run


class Pausing(OutboxBase):
    """What both colours share."""

    async def _pause(
        self, key: PauseKey, reason: str, by: str | None, until: datetime | None, lasts: Duration | None
    ) -> None:
        if until is not None and (lasts is not None or until.tzinfo is None):
            what = "until and lasts were both given" if lasts is not None else f"until is {until}, without a time zone"
            raise InvalidOption(what, fix="give one of them: lasts='30m', or until with tzinfo")
        time: timedelta | None = None if lasts is None else duration(lasts, name="lasts")
        pauses = await self._kept_pauses()
        who = by or f"{node()}/{getpid()}"
        await pauses.pause(key, reason=redact(reason)[:2000], by=who[:128], lasts=time, until=until)
        await self._current().repaused()

    async def _resume(self, key: PauseKey) -> bool:
        pauses = await self._kept_pauses()
        is_over = await pauses.resume(key)
        if key.kind is PauseKind.TYPE:
            await pauses.hasten(key.name, None)
        else:
            await pauses.hasten(None, key.name)
        await self._current().repaused()
        return is_over

    async def _paused(self) -> list[Pause]:
        return await (await self._kept_pauses()).all()

    async def _kept_pauses(self) -> Pauses:
        await self._store.open()
        if self._store.pauses is None:
            raise InvalidOption(f"{self._store!r} keeps no pauses", fix="use a store that has them")
        return self._store.pauses


class BlockingPausing(Pausing):
    """For threads."""

    def pause(
        self,
        *,
        handler: str | None = None,
        event_type: str | Enum | None = None,
        reason: str = "",
        until: datetime | None = None,
        lasts: Duration | None = None,
        by: str | None = None,
    ) -> None:
        """Deliver nothing to a handler, by its id, or nothing of an event type, over the whole fleet, until resume() is
        called or the time is over on the database's clock.

        Events stay in the table, and nothing of them is counted. What runs is not ended. This process knows it when the
        call returns; others when they are woken, at the latest with their next poll.
        """
        run(self._pause(key_of(handler, event_type), reason, by, until, lasts))

    def resume(self, *, handler: str | None = None, event_type: str | Enum | None = None) -> bool:
        """Deliver again, at once, retries that were soon due included. False when it was not paused."""
        return run(self._resume(key_of(handler, event_type)))

    def paused(self) -> list[Pause]:
        """What is paused, in order of kind and name."""
        return run(self._paused())


class AsyncPausing(Pausing):
    """For asyncio."""

    async def pause(
        self,
        *,
        handler: str | None = None,
        event_type: str | Enum | None = None,
        reason: str = "",
        until: datetime | None = None,
        lasts: Duration | None = None,
        by: str | None = None,
    ) -> None:
        """Deliver nothing to a handler, by its id, or nothing of an event type, over the whole fleet, until resume() is
        called or the time is over on the database's clock.

        Events stay in the table, and nothing of them is counted. What runs is not ended. This process knows it when the
        call returns; others when they are woken, at the latest with their next poll.
        """
        await self._pause(key_of(handler, event_type), reason, by, until, lasts)

    async def resume(self, *, handler: str | None = None, event_type: str | Enum | None = None) -> bool:
        """Deliver again, at once, retries that were soon due included. False when it was not paused."""
        return await self._resume(key_of(handler, event_type))

    async def paused(self) -> list[Pause]:
        """What is paused, in order of kind and name."""
        return await self._paused()


def key_of(handler: str | None, event_type: str | Enum | None) -> PauseKey:
    if (handler is None) == (event_type is None):
        raise InvalidOption(
            "a pause is of one handler or of one event type",
            fix="give handler='send_receipt' or event_type='OrderPlaced'",
        )
    if event_type is not None:
        return PauseKey(PauseKind.TYPE, name_of(event_type, "event_type", 128))
    return PauseKey(PauseKind.HANDLER, name_of(handler, "handler", 255))
