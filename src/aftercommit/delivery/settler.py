"""Writes outcomes in groups: one transaction for all that finished since the last, retried until it is answered."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding, Unsettled, settlements_of
from aftercommit.delivery.outcomes import rule_of, without_text
from aftercommit.delivery.said import facts_of_row
from aftercommit.events.claims import RowKey
from aftercommit.events.log import Log
from aftercommit.events.outcome import RELEASE, UNANSWERED, WRITTEN, Dead, Defer, Done, Outcome, Release, Retry
from aftercommit.events.redact import error_text
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime
from aftercommit.service import FIRST_PAUSE, Service

log = Log("aftercommit.settler")

#: Seconds between two flushes. A lone outcome after a pause is written at once; under load this much gathers into
#: one transaction, which matters most where one writer holds the whole database.
LINGER: Final = 0.005
#: A group that is flushed without lingering, and the most that one transaction writes.
GROUP: Final = 500
#: No number of outcomes is worth a wake-up while the settler is at work.
_AWAKE: Final = float("inf")

_COUNTED: Final = {
    Done: "dispatch_success",
    Retry: "dispatch_failure",
    Dead: "dispatch_dead",
    Defer: "dispatch_deferred",
    Release: "released",
}


class Settler(Service):
    """Takes outcomes from workers and gets them written. An outcome is never turned back into a delivery."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        held: Held,
        agenda: Agenda,
        lanes: Lanes[Holding],
        meter: Meter,
        config: OutboxConfig,
    ) -> None:
        super().__init__(runtime, "aftercommit-settler")
        self._store, self._held = store, held
        self._agenda, self._lanes, self._meter = agenda, lanes, meter
        self._capacity = config.hot_queue_capacity + config.cold_queue_capacity
        #: A dead event holds back its key.
        self._blocks = rule_of(config).blocks
        self._pending: deque[Unsettled] = deque()
        #: How many outcomes wake the settler. It says so before it looks, and workers look after they have appended:
        #: one of the two sees the other, without a lock.
        self._wakes_at = _AWAKE
        self._flushing = 0
        self._lets_all_pass = False
        self._ends_at: float | None = None
        self._flushed_at = float("-inf")
        self._space = runtime.monitor()

    def add(self, holding: Holding, outcome: Outcome) -> Unsettled:
        """Take an outcome; from any thread, at once."""
        entry = Unsettled(holding, outcome, holding.lease.epoch)
        holding.is_reported = True
        if outcome is WRITTEN and holding.claimed is not None:  # by the handler itself, under the lease that it had
            self.let_go(holding, holding.claimed.lease.epoch)
            self._meter.count("dispatch_success")
            entry.is_answered = True
            return entry
        entry.is_ambiguous = outcome is UNANSWERED
        self._pending.append(entry)
        if len(self._pending) >= self._wakes_at:
            with self.monitor:
                self._wakes_at = _AWAKE
                self.monitor.notify_all()
        return entry

    def release(self, holdings: Iterable[Holding]) -> None:
        """Give rows back undelivered: free for anybody at once."""
        for holding in holdings:
            self.add(holding, RELEASE)

    def let_go(self, holding: Holding, epoch: int) -> None:
        """Forget a row whose lease under that epoch is another's by now; nothing is written of it. One that was claimed
        anew meanwhile is given back."""
        free, claimed_anew = self._held.let_go([Unsettled(holding, RELEASE, epoch)])
        if free:
            self._agenda.freed(free)
        self.release(claimed_anew)

    async def answered(self, entry: Unsettled) -> None:
        """Wait until this one is written or refused. An unreachable store raises only where no service would go on."""
        try:
            await self.flush()
        except Exception:
            if not self.is_running:
                raise
        await self._space.wait_for(lambda: entry.is_answered or self._lets_all_pass or not self.is_running)

    async def space(self) -> None:
        """Wait while there are as many unsettled outcomes as both lanes hold."""
        await self._space.wait_for(lambda: self.has_space)

    @property
    def has_space(self) -> bool:
        return self._lets_all_pass or len(self._pending) + self._flushing < self._capacity

    def let_all_pass(self) -> None:
        """Nothing more is delivered: workers that wait for space have to end, also when the store is away."""
        with self._space:
            self._lets_all_pass = True
            self._space.notify_all()

    @property
    def unsettled(self) -> int:
        return len(self._pending) + self._flushing

    async def step(self) -> None:
        """One group, and a pause before the next, in which it gathers: a quick store would else get many small ones."""
        if not self._pending:
            await self._asleep_until(1)
        rest = self._flushed_at + LINGER - self.runtime.clock()
        if rest > 0 and len(self._pending) < GROUP:
            await self._asleep_until(GROUP, rest)
        if self._pending:
            await self.flush_group()

    async def _asleep_until(self, count: int, timeout: float | None = None) -> None:
        def is_enough() -> bool:
            self._wakes_at = count  # each time: what woke it may have been written by another meanwhile
            return len(self._pending) >= count or self.is_stopping

        await self.monitor.wait_for(is_enough, timeout)
        self._wakes_at = _AWAKE

    async def finish(self, limit: float) -> None:
        """Write the rest before the end; what cannot be written in time is delivered again when its lease is over."""
        self._ends_at = self.runtime.clock() + limit
        if not self.was_started:
            await self._write_rest(self._ends_at)
        elif not (await self.stop(limit) or await self.stop()):
            log.error("%d outcomes could not be written: the store did not answer in time", self.unsettled)

    async def _run(self) -> None:
        await super()._run()
        if self._ends_at is not None:  # here, because whoever closes must not wait for the store itself
            await self._write_rest(self._ends_at)

    async def _write_rest(self, until: float) -> None:
        pause, problem = FIRST_PAUSE, Exception("the store did not answer in time")
        while self.unsettled:
            try:
                await self.flush(max(0.0, until - self.runtime.clock()))
            except Exception as error:
                problem = error
            if self.unsettled and self.runtime.clock() + pause >= until:
                log.error("%d outcomes could not be written: %s", self.unsettled, error_text(problem), error=problem)
                return
            await self._space.wait_for(lambda: not self.unsettled, pause)
            pause *= 2

    async def flush(self, timeout: float | None = None) -> None:
        """Write what is there now, after what another is writing; `timeout` is how long to wait for that one.

        Raises when the store cannot be reached; nothing is lost by that.
        """
        while (self._pending or self._flushing) and await self.flush_group(timeout):
            pass

    async def flush_group(self, timeout: float | None = None) -> bool:
        """Write the next group; False when there is none, or another one is being written for so long."""
        turn = await self._space.wait_for(self._turn, timeout)
        if not turn or not turn[0]:
            return False
        self._flushed_at = self.runtime.clock()
        try:
            await self.runtime.shielded(self._write(turn[0]))
        finally:
            with self._space:
                self._flushing = 0
                self._space.notify_all()
        return True

    def _turn(self) -> tuple[list[Unsettled], ...]:
        """The next group; empty, and so false, while another one is being written."""
        if self._flushing:
            return ()
        # Counted before it is taken: whoever looks in between must not see less than there is.
        self._flushing = min(len(self._pending), GROUP)
        return ([self._pending.popleft() for _ in range(self._flushing)],)

    async def _write(self, group: list[Unsettled]) -> None:
        try:
            refused = await self._store.settle(settlements_of(group))
        except Exception as error:
            if not self._store.is_row_fault(error):
                self._put_back(group)
                raise
            await self._write_one_by_one(group, error)
            return
        self._close(group, refused)

    async def _write_one_by_one(self, group: list[Unsettled], error: Exception) -> None:
        """One row of the group is to blame; it must not keep the others, nor itself, from ending."""
        log.warning("a group of %d outcomes was refused and is written row by row: %s", len(group), error_text(error))
        unwritable: list[Unsettled] = []
        problem = error
        for index, entry in enumerate(group):
            try:
                refused = await self._write_single(entry)
            except Exception as refusal:
                problem = refusal
                if not self._store.is_row_fault(refusal):
                    unwritable += group[index:]
                    break
                unwritable.append(entry)
            else:
                self._close([entry], refused)
        if unwritable:
            self._put_back(unwritable)
            raise problem

    async def _write_single(self, entry: Unsettled) -> Collection[RowKey]:
        try:
            return await self._store.settle(settlements_of([entry]))
        except Exception as error:
            if not self._store.is_row_fault(error):
                raise
            log.warning("%s is written without its error text: %s", entry.holding, error_text(error))
        entry.outcome = without_text(entry.outcome)
        return await self._store.settle(settlements_of([entry]))

    def _put_back(self, group: list[Unsettled]) -> None:
        """To be written later, behind what came meanwhile: one that is refused for ever must not hold up the rest."""
        for entry in group:
            entry.is_ambiguous = True
        self._pending += group

    def _close(self, group: Sequence[Unsettled], refused: Collection[RowKey]) -> None:
        """The store has answered: let go of what is settled and of what was lost."""
        free, claimed_anew = self._held.let_go(group)
        counts: Counter[str] = Counter()
        for entry in group:
            is_refused = bool(refused) and entry.holding.lease.key in refused
            if claimed_anew and entry.holding in claimed_anew:
                # What was refused stands under the new lease; after what was written nobody would deliver under it.
                again = entry if is_refused else Unsettled(entry.holding, RELEASE, entry.holding.lease.epoch)
                self._pending.append(again)  # which this flush, or the next step, finds
                if is_refused:
                    continue
            entry.is_answered = True
            if not is_refused:
                counts[_COUNTED[type(entry.outcome)]] += 1
                if not isinstance(entry.outcome, Done):
                    self._announce(entry)
            elif entry.is_ambiguous:
                if not isinstance(entry.outcome, Dead):  # most likely written by the try that was not answered
                    self._announce(entry)
            else:
                self._meter.lost(*entry.holding.told)
                self._lose(entry)
        if free:
            self._agenda.freed(free)
        for name, times in counts.items():
            self._meter.count(name, times)

    def _lose(self, entry: Unsettled) -> None:
        holding, name = entry.holding, type(entry.outcome).__name__.upper()
        text = "the lease on %s was lost before %s was written; another holder decides"
        log.warning(text, holding, name, outcome="lease_lost", **facts_of_row(holding))
        if (key := holding.order_key) is not None:
            self.release(self._lanes.give_back(lambda waiting: waiting == key))

    def _announce(self, entry: Unsettled) -> None:
        key = entry.holding.order_key
        match entry.outcome:
            case Retry(delay) | Defer(delay):
                self._agenda.add(EVERYWHERE if key is None else [key], delay.total_seconds())
            case Release():
                self._agenda.add(EVERYWHERE if key is None else [key])
            case Dead(error):
                stuck = key.key if key is not None and self._blocks else None
                rest = "" if stuck is None else f", and its key {stuck} stands still until it is replayed or discarded"
                log.error("%s is DEAD%s: %s", entry.holding, rest, error, outcome="dead", **facts_of_row(entry.holding))
