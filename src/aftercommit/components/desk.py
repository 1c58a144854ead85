"""What the parts over one store share although nobody wired them together: the leases of events that a poller's handler
has in its hands, the connections, and the fate of a fork."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary, WeakSet

from aftercommit.config import OutboxConfig, configure
from aftercommit.errors import ColourMismatch, InvalidOption, did_you_mean
from aftercommit.events.claims import Claimed, RowKey
from aftercommit.options import Wiring
from aftercommit.ports import Colour, EventStore, Runtime
from aftercommit.runtime.threads import ThreadRuntime

#: Events that handlers may have in their hands. A poller whose handler has so many looks for no more.
AT_MOST: Final = 10_000


class Desk:
    """Of one store. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = ThreadRuntime().lock()
        #: In the order of handing out.
        self._out: dict[RowKey, Claimed] = {}
        self._users: WeakSet[Part] = WeakSet()

    def room(self, now: float) -> int:
        """How many more may be handed out. Those whose leases are over are nobody's business here any more."""
        with self._lock:
            while self._out and (first := next(iter(self._out.values()))).lease.deadline <= now:
                del self._out[first.lease.key]
            return AT_MOST - len(self._out)

    def hand_out(self, claimed: Claimed) -> None:
        """A handler gets this event."""
        with self._lock:
            self._out[claimed.lease.key] = claimed

    def take(self, event_id: str) -> Claimed | None:
        """The lease of an event, for whoever goes on with it; None when nobody here has one."""
        with self._lock:
            key = RowKey(event_id, "")
            if key not in self._out:
                key = next((each for each in self._out if each.event_id == event_id), key)
            return self._out.pop(key, None)

    def take_back(self, claimed: Claimed) -> bool:
        """Whether nobody has gone on with it."""
        with self._lock:
            return self._out.pop(claimed.lease.key, None) is claimed

    def join(self, part: Part) -> None:
        with self._lock:
            self._users.add(part)

    def leave(self, part: Part) -> bool:
        """Whether it was the last."""
        with self._lock:
            self._users.discard(part)
            return not self._users


_desks: Final[WeakKeyDictionary[EventStore, Desk]] = WeakKeyDictionary()
_parts: Final[WeakSet[Part]] = WeakSet()


def desk_of(store: EventStore) -> Desk:
    desk = _desks.get(store)
    return _desks.setdefault(store, Desk()) if desk is None else desk


class Part(ABC):
    """A component over a store, of one colour."""

    _colour: ClassVar[Colour]

    def __init__(self, store: EventStore) -> None:
        needs(store, "a store", "claim", "detect_store(target), or detect_async_store(target) for asyncio")
        if store.colour is not self._colour:
            raise ColourMismatch(
                f"{type(self).__name__} is {self._colour.value}, {store!r} is {store.colour.value}",
                fix="make the store with detect_store() for threads, with detect_async_store() for asyncio",
            )
        if store.order.ordered:
            raise InvalidOption(f"{store!r} keeps order, which takes a whole outbox", fix="use Outbox.ordered(…)")
        self._store = store
        _parts.add(self)

    @abstractmethod
    def _runtime(self) -> Runtime:
        """A new one for this thread, or this loop."""

    async def _leave(self) -> None:
        """Nothing of this part runs any more; the last one gives up the connections."""
        if desk_of(self._store).leave(self):
            await self._store.close()

    def _after_fork(self) -> None:
        """Nothing of the parent's may be used in a child: its threads are not here, its connections are its own."""
        self._store.abandon()


def needs(given: object, what: str, method: str, fix: str) -> None:
    """Refuse what cannot be the part that it was given for."""
    if not hasattr(given, method):
        raise InvalidOption(f"{given!r} is not {what}: it has no {method}()", fix=fix)


def config_of(options: Mapping[str, Any], known: type, **defaults: Any) -> OutboxConfig:
    """The options of a part. Those of others are refused: they would be without effect."""
    for name, value in options.items():
        if name not in known.__annotations__:
            raise InvalidOption(f"there is no option {name}={value!r}", fix=did_you_mean(name, known.__annotations__))
    return configure(Wiring.CUSTOM, {**defaults, **options})


def _after_fork_in_child() -> None:
    _desks.clear()
    for part in list(_parts):
        part._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
