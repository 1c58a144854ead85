"""One key after another: how the poller looks where order is kept, and where committed events are told of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import Agenda
from aftercommit.delivery.leases import Held
from aftercommit.delivery.outcomes import rule_of
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.wakeups import Announcer
from aftercommit.delivery.worker import HotPathway, OutboxDispatcher
from aftercommit.events.claims import Claim, Claimed, deadline_of, order_key_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.order import Head, HeadsRequest, HeadState, KeyClaimRequest, OrderKey
from aftercommit.handlers.routing import Router
from aftercommit.meter import Meter
from aftercommit.polling.due import Found
from aftercommit.ports import EventStore, Runtime

#: Heads that one look of a round passes by at most.
PROBES: Final = 500

#: Rows of a key that a claim asks for, at least and at most, where there are more keys than it has room for. With one
#: alone each key would be looked at again, only to find nothing behind it; and other keys wait for those of long runs.
SHORTEST: Final = 2
LONGEST: Final = 16

#: Seconds by which two looks may differ on when a row is due. Each says it a little late, never early.
SAME: Final = 0.05

_NOTHING: Final = Claim(())


class LookByKey:
    """Claims runs of keys: of those on the agenda, and in rounds of all the others. A key on the agenda costs one
    probe, whatever else is in the table."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        agenda: Agenda,
        ownership: Ownership,
        config: OutboxConfig,
        *,
        owner: str,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._agenda = agenda
        self._ownership = ownership
        self._owner = owner
        self._lock_timeout = config.lock_timeout
        self._rule = rule_of(config)
        self._sweep = Sweep()
        self._run = SHORTEST
        #: Fewer keys than this would leave workers without an event that may run.
        self._fewest_keys = 2 * config.worker_count
        self._begins_round = True
        # When rounds have put keys on the agenda for later; the next round finds the same ones again.
        self._later: dict[OrderKey, float] = {}

    def look_everywhere(self) -> None:
        self._begins_round = True

    async def claim(self, limit: int) -> Found:
        owned = self._ownership.owned
        if self._begins_round:
            self._begins_round = False
            self._sweep.begin(owned)
            now = self._runtime.clock()
            self._later = {key: at for key, at in self._later.items() if at > now}
        if not self._sweep.is_over and self._agenda.ready < limit:
            await self._walk()  # a piece of the round with every claim, so that calls cannot hold it up
        while not self._sweep.is_over and not self._agenda.ready:
            await self._walk()
        most = max(limit // self._run, min(limit, self._fewest_keys))
        keys = self._agenda.take(most, owned)
        claim = await self._claim(keys, limit) if keys else _NOTHING
        return Found(claim, is_all=self._sweep.is_over and not self._agenda.ready, is_full=len(keys) >= most)

    async def _walk(self) -> None:
        """One piece of the round: what is ready goes on the agenda now, what will be before the next round for then."""
        stretch, in_memory = self._sweep.stretch(), self._agenda.held()
        found = await self._store.heads(HeadsRequest(stretch.partitions, PROBES, self._rule, stretch.after))
        self._sweep.passed(stretch, found.after)
        # What this process has itself in memory is leased, and may have more behind it: the agenda keeps it until it is
        # let go of. It was in memory before the look; what has left since is found ready.
        if ready := [
            head.key
            for head in found.heads
            if head.state is HeadState.READY or (head.state is HeadState.LEASED and head.key in in_memory)
        ]:
            self._agenda.add(ready)
        for head in found.heads:
            if head.state in (HeadState.LATER, HeadState.LEASED):
                self._add_later(head)

    def _add_later(self, head: Head) -> None:
        if head.wait > self._agenda.horizon:
            return
        at, before = self._runtime.clock() + head.wait, self._later.get(head.key)
        if (before is None or abs(at - before) > SAME) and self._agenda.add([head.key], head.wait):
            self._later[head.key] = at

    async def _claim(self, keys: list[OrderKey], limit: int) -> Claim:
        """The rows of few keys in long runs, of many keys in short ones: about as many in all."""
        run = max(1, limit // len(keys))
        request = KeyClaimRequest(
            owner=self._owner,
            keys=keys,
            run=run,
            lock_timeout=self._lock_timeout,
            deadline=deadline_of(self._runtime.clock(), self._lock_timeout),
            rule=self._rule,
        )
        try:
            claim = await self._store.claim_keys(request)
        except BaseException:
            self._agenda.add(keys)
            raise
        lengths = Counter(row.order_key for row in claim.rows)
        # A full run has more behind it; it is looked at again once these are out of memory.
        if full := [key for key in keys if lengths[key] >= run]:
            self._agenda.add(full)
        if len(claim.rows) >= len(keys) * self._run:
            self._run = min(2 * self._run, LONGEST)
        elif 2 * len(claim.rows) < len(keys) * self._run:
            self._run = max(self._run // 2, SHORTEST)
        return claim


class Stretch(NamedTuple):
    """The next piece of a round: partitions in the order to walk them, behind a key of the first one."""

    partitions: Sequence[int]
    after: OrderKey | None


class Sweep:
    """A round begins where the last piece ended, whichever round that was of: else what comes late would starve."""

    def __init__(self) -> None:
        self._after: OrderKey | None = None
        self._ahead: list[int] = []

    @property
    def is_over(self) -> bool:
        return not self._ahead

    def begin(self, partitions: Iterable[int]) -> None:
        """A whole round over these, from here to here."""
        ordered = sorted(partitions)
        after = self._after
        if after is None:
            self._ahead = ordered
            return
        self._ahead = [each for each in ordered if each >= after.partition]
        self._ahead += [each for each in ordered if each < after.partition]
        if self._ahead and self._ahead[0] == after.partition:
            self._ahead.append(after.partition)  # its keys up to the one where this round begins
        else:
            self._after = None

    def end(self) -> None:
        """Nothing more is to be walked."""
        self._ahead = []

    def stretch(self) -> Stretch:
        """What to walk next. No partition is in it twice."""
        is_round = len(self._ahead) > 1 and self._ahead[0] == self._ahead[-1]
        return Stretch(self._ahead[:-1] if is_round else list(self._ahead), self._after)

    def passed(self, stretch: Stretch, after: OrderKey | None) -> None:
        """A stretch was walked up to this key; None: to its end."""
        self._after = after
        walked = len(stretch.partitions) if after is None else list(stretch.partitions).index(after.partition)
        del self._ahead[:walked]


class OrderedHotPath(HotPathway):
    """Where order is kept. An event without a key is hot; one with a key as the first of it, where the store can tell.
    The keys of all others go on the agenda with their commit, or are told to their owners."""

    def __init__(
        self,
        dispatcher: OutboxDispatcher,
        agenda: Agenda,
        router: Router,
        meter: Meter,
        config: OutboxConfig,
        announcer: Announcer | None,
        ownership: Ownership,
        held: Held,
        *,
        owner: str,
        leases_firsts: bool,
    ) -> None:
        super().__init__(dispatcher, agenda, router, meter, config, announcer, owner=owner)
        self._ownership = ownership
        self._held = held
        self._leases_firsts = leases_firsts

    def _wanted(self, events: Sequence[EventEnvelope], *, with_firsts: bool) -> list[bool]:
        if not (with_firsts and self._leases_firsts):
            return super()._wanted(events, with_firsts=with_firsts)
        keys: set[str] = set()
        wanted = []
        for event in events:
            wanted.append(self._may_be_hot(event) or self._may_be_first(event, keys))
            if event.key is not None:
                keys.add(event.key)
        return wanted

    def _may_be_hot(self, event: EventEnvelope) -> bool:
        return event.key is None and not event.is_delayed

    def _may_be_first(self, event: EventEnvelope, before: Collection[str]) -> bool:
        """Only one row of a key: whatever else is written with it follows when that one has ended. So what is in memory
        of a key never grows beyond the slots that were reserved. Where something of it is in memory it is not the
        first, most likely, and the store need not be asked."""
        if event.key is None or event.key in before or event.is_delayed:
            return False
        key = order_key_of(event)
        return self._ownership.has(key) and not self._held.has(key)

    def expect(self, events: Sequence[EventEnvelope]) -> None:
        # Else a call for what follows could come between the commit and its callback, find the first one leased, and be
        # forgotten.
        self._held.expect(map(order_key_of, events))

    def not_expected(self, events: Sequence[EventEnvelope]) -> None:
        if free := self._held.not_expected(map(order_key_of, events)):
            self._agenda.freed(free)

    def fill(self, claimed: Sequence[Claimed]) -> None:
        super().fill([_in_order(each) for each in claimed])

    def give_back(self, claimed: Sequence[Claimed]) -> None:
        for each in claimed:
            self._dispatcher.give_back_if_leased(_in_order(each))

    def _tell(self, events: Sequence[EventEnvelope]) -> None:
        owned = self._ownership.owned
        ready = {order_key_of(event): None for event in events if not event.is_delayed}
        if mine := [key for key in ready if key.partition in owned]:
            self._agenda.wrote(mine)
        if self._announcer is not None and len(mine) < len(ready):
            self._announcer.tell(key for key in ready if key.partition not in owned)
        for event in events:
            if event.deliver_after is not None and (key := order_key_of(event)).partition in owned:
                self._agenda.add([key], event.deliver_after.total_seconds())

    def _keys(self, events: Sequence[EventEnvelope]) -> Sequence[OrderKey]:
        return [order_key_of(event) for event in events]


def _in_order(claimed: Claimed) -> Claimed:
    """Nothing is in order with an event that has no key."""
    return claimed if claimed.event.key is None else replace(claimed, order_key=order_key_of(claimed.event))
