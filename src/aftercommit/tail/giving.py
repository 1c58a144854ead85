"""What was read waits here for room with the workers; where order is kept, also for what comes before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from datetime import timedelta
from itertools import chain
from typing import Final

from msgspec.structs import replace

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import Claim, Claimed, Lease, deadline_of
from aftercommit.events.order import OrderKey
from aftercommit.handlers.routing import Router
from aftercommit.polling.poller import OutboxPoller
from aftercommit.ports import Replication, Runtime
from aftercommit.tail.captured import CapturedStore
from aftercommit.tail.progress import Entry

#: No more is read while so many events wait.
WAITING: Final = 500

#: Events that may be with the workers at once, at most.
GIVEN: Final = 500

#: Seconds that an event may spend with the workers before fewer are given to them. Long before its lease is renewed,
#: which would cost a statement for each.
SLOW: Final = 1.0


class Giving:
    """Gives the workers what they get through in a moment, in the order of commits; of a key only what nothing in
    memory or in the table comes before. Used by the reader alone."""

    def __init__(
        self,
        runtime: Runtime,
        replication: Replication,
        store: CapturedStore,
        dispatcher: OutboxDispatcher,
        agenda: Agenda,
        poller: OutboxPoller,
        router: Router,
        config: OutboxConfig,
        *,
        owner: str,
    ) -> None:
        self._router = router
        self._runtime, self._replication, self._store = runtime, replication, store
        self._dispatcher, self._agenda = dispatcher, agenda
        #: Knows what may not be delivered.
        self._poller = poller
        self._lock_timeout, self._ordered = config.lock_timeout, config.ordered
        self._by_dead = config.on_dead == "block"
        self._owner = owner
        self._waiting: deque[Entry] = deque()
        self._depth = 2 * config.worker_count
        self._most = min(GIVEN, config.cold_queue_capacity)
        self._looked_at = float("-inf")

    @property
    def has_room(self) -> bool:
        """Whether more may be read."""
        return len(self._waiting) < WAITING

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def add(self, entries: Sequence[Entry]) -> None:
        self._waiting += entries

    def clear(self) -> None:
        self._waiting.clear()

    # ------------------------------------------------------------ to the workers

    async def choose(self) -> list[Entry]:
        """What may begin now. It goes on waiting until it is handed over, should something fail in between."""
        lanes = self._dispatcher.lanes
        if not self._waiting:
            return []
        self._adapt(lanes.cold_depth, self._runtime.clock())
        room = min(self._depth - lanes.cold_depth, lanes.cold_room)
        chosen = await self._unblocked(self._startable(room)) if room > 0 else []
        return await self._leased(chosen) if self._has_effects() else chosen

    def _has_effects(self) -> bool:
        """Whether a handler's changes are to be committed together with the mark of its row."""
        return any(handler.settings.transactional for handler in self._router.roster.handlers.values())

    async def _leased(self, chosen: list[Entry]) -> list[Entry]:
        """What a transactional handler takes needs a row that can be marked: these are the table's, and leased."""
        wanted = {entry for entry in chosen if self._is_for_effects(entry)}
        if not wanted:
            return chosen
        deadline = deadline_of(self._runtime.clock(), self._lock_timeout)
        leases = [lease_of(entry, self._owner, deadline) for entry in chosen if entry in wanted]
        taken = set(await self._store.take(leases, self._lock_timeout))
        self._forget(wanted)
        return [entry for entry in chosen if entry not in wanted or entry.key in taken]

    def _is_for_effects(self, entry: Entry) -> bool:
        if not isinstance(entry.row, Claimed):
            return False
        try:
            routes = self._router.routes_of_row(entry.row.event, entry.key.handler_id)
        except Exception:  # nobody takes it, or a predicate of the user's fails, which its delivery says
            return False
        return any(route.effects is not None for route in routes)

    def _adapt(self, waiting: int, now: float) -> None:
        """As many as the workers get through in a moment."""
        progress = self._store.progress
        if waiting == 0:
            self._depth = min(2 * self._depth, self._most)
        elif now - self._looked_at >= SLOW and progress is not None:
            self._looked_at = now
            if progress.given_before(now - SLOW):
                self._depth = max(2, self._depth // 2)

    def _startable(self, room: int) -> list[Entry]:
        """The first that are nobody's yet; of a key with events at the workers nothing."""
        progress, chosen = self._store.progress, list[Entry]()
        if progress is None:
            return chosen
        closed = set(progress.busy())
        for entry in self._waiting:
            if len(chosen) >= room:
                break
            if entry.order_key not in closed:
                chosen.append(entry)
        return chosen

    async def _unblocked(self, chosen: list[Entry]) -> list[Entry]:
        """Without those behind something in the table, which are the table's as well, and come in order there."""
        keys = {entry.order_key for entry in chosen if entry.order_key is not None}
        blocked = await self._replication.blocked(keys, by_dead=self._by_dead) if keys else {}
        behind = {
            each
            for each in chosen
            if each.order_key is not None
            and each.order_key in blocked
            and not _is_before(each, blocked[each.order_key])
        }
        if behind:
            await self.to_table([each for each in chosen if each in behind], "")
            self._forget(behind)
        return [entry for entry in chosen if entry not in behind]

    def _forget(self, entries: Collection[Entry]) -> None:
        """They wait no more; nearly always they are the first."""
        while self._waiting and self._waiting[0] in entries:
            self._waiting.popleft()
        if self._ordered:
            self._waiting = deque(entry for entry in self._waiting if entry not in entries)

    def hand_over(self, chosen: Sequence[Entry]) -> None:
        """To the workers, unless somebody else has filled the room."""
        progress, now = self._store.progress, self._runtime.clock()
        if progress is None:
            return
        self._forget(set(chosen))
        deadline = deadline_of(now, self._lock_timeout)
        for entry in chosen:
            progress.give(entry, now)
        rows = [replace(entry.row, lease=lease_of(entry, self._owner, deadline)) for entry in chosen]
        if self._dispatcher.enqueue_all(chain.from_iterable(self._poller.deliverable(Claim(rows)))):
            return
        for entry in chosen:
            progress.take_back(entry)
        self._waiting.extendleft(entry for entry in reversed(chosen) if progress.of(entry.key) is entry)

    # ------------------------------------------------------------ to the table

    async def to_table(self, entries: Sequence[Entry], owner: str) -> None:
        """Their rows are the table's from here on: free, or as if somebody's lease were over."""
        await self._store.take([lease_of(entry, owner, 0.0) for entry in entries], timedelta(0))
        keys = {entry.order_key for entry in entries}
        self._agenda.add([key for key in keys if key is not None] or EVERYWHERE)


def lease_of(entry: Entry, owner: str, deadline: float) -> Lease:
    """In name only: the row itself is nobody's."""
    return Lease(entry.key, owner, 1, deadline)


def place_of(key: OrderKey | None) -> Collection[OrderKey] | None:
    """Where the poller finds an event."""
    return EVERYWHERE if key is None else [key]


def _is_before(entry: Entry, first: int) -> bool:
    """Whether the event was written before what its key has in the table."""
    return isinstance(entry.row, Claimed) and entry.row.position < first
