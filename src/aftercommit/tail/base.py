"""What both colours of the tail share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Self, Unpack

from aftercommit.base import OutboxBase
from aftercommit.config import OutboxConfig, OutboxOptions, configure
from aftercommit.engine import Engine
from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration
from aftercommit.handlers.routing import Router
from aftercommit.options import Wiring
from aftercommit.ports import EventStore, Replication, Runtime
from aftercommit.tail.engine import TailEngine

#: The slot of somebody who has named none.
SLOT: Final = "outbox_tail"

#: Options of outboxes that make no sense here, and why.
_REFUSED: Final = {
    "hot_path": "events come from the log",
    "poller_enabled": "what failed is found in the table",
    "lease_ahead": "what comes from the log is not leased",
    "replication": "a tail reads its slot",
}

#: A tail knows of nearly all that is in the table for it; this is for what nobody told.
_POLL_INTERVAL: Final = "30s"


class TailBase(OutboxBase):
    """An outbox that reads its events from PostgreSQL's log."""

    def __init__(
        self,
        target: Any,
        *,
        slot: str = SLOT,
        interval: Duration = "250ms",
        config: OutboxConfig | None = None,
        **options: Unpack[OutboxOptions],
    ) -> None:
        """`slot` names the replication slot and its publication. Where nobody wakes it, a tail asks the server so often
        whether there is more to read."""
        for name, why in _REFUSED.items():
            if name in options:
                raise InvalidOption(f"{name}={options[name]!r} makes no sense in a tail: {why}", fix="leave it out")  # type: ignore[literal-required]
        self._interval = duration(interval, name="interval", positive=True)
        named: dict[str, Any] = {"poll_interval": _POLL_INTERVAL} if config is None else {}
        if "max_poll_interval" in options:
            named = {}
        chosen = configure(Wiring.CUSTOM, {**named, **options, "hot_path": False, "replication": slot}, config)
        self._set_up(target, chosen)

    @classmethod
    def _wired(cls, wiring: Wiring, target: Any, options: Mapping[str, Any]) -> Self:
        if wiring in (Wiring.CUSTOM, Wiring.ORDERED):
            more: dict[str, Any] = {"ordered": True} if wiring is Wiring.ORDERED else {}
            return cls(target, **options, **more)
        raise InvalidOption(
            f"{cls.__name__}.{wiring.value} makes no sense: a tail has a wiring of its own",
            fix=f"{cls.__name__}(target, …)",
        )

    def _set_up(self, target: Any, config: OutboxConfig) -> None:
        super()._set_up(target, config)
        self._make_engine = self._tail_engine

    def _tail_engine(self, runtime: Runtime, store: EventStore, router: Router, config: OutboxConfig) -> Engine:
        return TailEngine(runtime, store, router, config, interval=self._interval)

    @property
    def slot(self) -> str:
        """Of the replication slot, and of its publication."""
        return self._replication().slot

    def _replication(self) -> Replication:
        replication = self._store.replication
        if replication is None:
            raise InvalidOption(f"{self._store!r} has no slot to read", fix="use PostgreSQL")
        return replication

    def _tail(self) -> TailEngine:
        engine = self._current()
        if not isinstance(engine, TailEngine):
            raise InvalidOption(f"{self!r} is led elsewhere, where there is no log", fix="use an Outbox")
        return engine

    async def _drop_slot(self) -> int:
        await self._store.open()
        return await self._replication().drop()

    async def _recover(self, since: datetime | None) -> int:
        if since is not None and since.tzinfo is None:
            raise InvalidOption(f"since={since!r} has no zone", fix="use a time with a zone: datetime.now(UTC)")
        await self._store.open()
        count = await self._replication().recover(since)
        self._unblocked()
        return count
