"""Handlers and event types that are paused, as the walk and the façade see them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from aftercommit.events.pauses import Pause, PauseKey


class Pauses(Protocol):
    """What is paused over the fleet. No row is touched by a pause: whoever meets one of it puts it off."""

    async def pause(
        self, key: PauseKey, *, reason: str, by: str, lasts: timedelta | None, until: datetime | None
    ) -> None:
        """From now on: for that long on the database's clock, until then on it, or for ever. Again replaces it."""

    async def resume(self, key: PauseKey) -> bool:
        """No more. False when it was not paused."""

    async def all(self) -> list[Pause]:
        """Those that have not ended, in order of kind and name."""

    async def hasten(self, event_type: str | None, handler_id: str | None) -> int:
        """Rows of that type, and for that handler id, which were put off and are due within `PUT_OFF_AT_MOST`, are due
        now, whoever put them off; leased ones are not. None: of any. How many."""
