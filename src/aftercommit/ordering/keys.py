"""How the poller looks where order is kept: at the keys that were called, and in rounds over all the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from aftercommit.events.claims import Claim, deadline_of
from aftercommit.events.order import Head, HeadsRequest, HeadState, KeyClaimRequest, OrderKey
from aftercommit.ordering.sweep import Sweep
from aftercommit.polling.agenda import Calls
from aftercommit.polling.due import Found, PollerOptions
from aftercommit.ports import EventStore, Runtime

#: Heads that one look of a round passes by at most.
PROBES: Final = 500

#: Seconds by which two looks may differ on when a row is due. Each says it a little late, never early.
SAME: Final = 0.05

_NOTHING: Final = Claim(())


class LookByKey:
    """Claims runs of keys. A called key costs one probe, whatever else is in the table."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        calls: Calls,
        options: PollerOptions,
        *,
        owned: Callable[[], Collection[int]],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._calls = calls
        self._options = options
        self._owned = owned
        self._sweep = Sweep()
        self._begins_round = True
        # When rounds have called keys for later; the next round finds the same ones again.
        self._later: dict[OrderKey, float] = {}

    def look_everywhere(self) -> None:
        self._begins_round = True

    def expect(self, keys: Collection[OrderKey], after: float) -> None:
        self._calls.add(keys, after=after)

    async def claim(self, limit: int) -> Found:
        owned = self._owned()
        if self._begins_round:
            self._begins_round = False
            self._sweep.begin(owned)
            now = self._runtime.clock()
            self._later = {key: at for key, at in self._later.items() if at > now}
        if self._calls.ready < limit and not self._sweep.is_over:
            await self._walk()  # a piece of the round with every claim, so that calls cannot hold it up
        while not self._calls.ready and not self._sweep.is_over:
            await self._walk()
        keys = self._calls.take(limit, owned)
        claim = await self._claim(keys, limit) if keys else _NOTHING
        return Found(claim, is_all=self._sweep.is_over and not self._calls.ready)

    def next_in(self) -> float | None:
        return self._calls.next_in()

    async def _walk(self) -> None:
        """One piece of the round: call what is ready, now, and what will be before the next round, then."""
        stretch = self._sweep.stretch()
        found = await self._store.heads(HeadsRequest(stretch.partitions, PROBES, self._options.rule, stretch.after))
        self._sweep.passed(stretch, found.after)
        self._calls.add([head.key for head in found.heads if head.state is HeadState.READY])
        for head in found.heads:
            if head.state in (HeadState.LATER, HeadState.LEASED):
                self._call_later(head)

    def _call_later(self, head: Head) -> None:
        if head.wait > self._calls.horizon:
            return
        at, before = self._runtime.clock() + head.wait, self._later.get(head.key)
        if (before is None or abs(at - before) > SAME) and self._calls.add([head.key], after=head.wait):
            self._later[head.key] = at

    async def _claim(self, keys: list[OrderKey], limit: int) -> Claim:
        """The rows of few keys in long runs, of many keys in short ones: about as many in all."""
        run = max(1, limit // len(keys))
        request = KeyClaimRequest(
            owner=self._options.owner,
            keys=keys,
            run=run,
            lock_timeout=self._options.lock_timeout,
            deadline=deadline_of(self._runtime.clock(), self._options.lock_timeout),
            rule=self._options.rule,
        )
        try:
            claim = await self._store.claim_keys(request)
        except BaseException:
            self._calls.add(keys)
            raise
        lengths = Counter(row.order_key for row in claim.rows)
        # A full run has more behind it; it is looked at again once these are out of memory.
        self._calls.add([key for key in keys if lengths[key] >= run])
        return claim
