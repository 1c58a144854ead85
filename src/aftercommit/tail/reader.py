"""Reads the log: peek, deliver, then advance, so that whoever reads next goes on where everything is delivered."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.leases import Held
from aftercommit.events.envelope import EventStatus
from aftercommit.events.log import Log
from aftercommit.handlers.routing import Router
from aftercommit.ports import Mark, Reading, Replication, Runtime
from aftercommit.ports.replication import Wrote
from aftercommit.service import Service
from aftercommit.tail.captured import CapturedStore
from aftercommit.tail.giving import Giving, place_of
from aftercommit.tail.progress import Entry, Passed, Progress

log = Log("aftercommit.tail")

#: Changes of one peek, which begins at what is not confirmed each time: of a large transaction few pieces are better.
BATCH: Final = 10_000

#: Changes that are read and not confirmed, over which a look for more has to go again.
CHEAP: Final = 1000

#: How far ahead of itself a tail says what it may begin. After a crash so many events are looked at with suspicion.
AHEAD: Final = 500

#: Seconds between two steps on of the slot while events keep coming.
STEP: Final = 0.1

#: Bytes of the log that held nothing for the tail, and that the server need not keep for it.
IDLE: Final = 1024**2

#: Seconds until the table is looked at, after a word that was about nothing in the log.
AGAIN: Final = 0.5

#: Seconds between two looks of a tail that stands by.
STANDS_BY: Final = 1.0


class TailReader(Service):
    """Has the lock of the slot, or stands by until it gets it."""

    def __init__(
        self,
        runtime: Runtime,
        replication: Replication,
        store: CapturedStore,
        giving: Giving,
        router: Router,
        held: Held,
        agenda: Agenda,
        *,
        owner: str,
        interval: timedelta,
        lock_timeout: timedelta,
    ) -> None:
        super().__init__(runtime, "aftercommit-tail")
        self._replication, self._store, self._giving = replication, store, giving
        self._router, self._held, self._agenda = router, held, agenda
        self._owner, self._lock_timeout = owner, lock_timeout
        self._interval = interval.total_seconds()
        self._reading: Reading | None = None
        #: Read, and not looked at yet.
        self._unsorted: list[Entry] = []
        self._is_called = self._has_settled = self._has_more = False
        #: Up to here the log was read; nothing behind it was there at that time.
        self._read_to = -1
        self._mark: Mark | None = None
        self._marked_at = float("-inf")
        #: Rows that the reader before us may have been killed by, and who that was.
        self._suspects = 0
        self._suspected = ""
        #: Rows that were begun since the last mark.
        self._begun = 0

    # ------------------------------------------------------------ from any thread

    def call(self) -> None:
        """Somebody has committed something."""
        with self.monitor:
            self._is_called = True
            self.monitor.notify_all()

    def settled(self) -> None:
        """Something that was given is through."""
        with self.monitor:
            self._has_settled = True
            self.monitor.notify_all()

    @property
    def is_reading(self) -> bool:
        """Whether the slot is ours; else another tail has it, or nobody can."""
        return self._reading is not None

    @property
    def progress(self) -> Progress | None:
        return self._store.progress

    def has_read(self, place: int) -> bool:
        """Whether everything up to there is through."""
        progress = self._store.progress
        return self.is_reading and self._read_to >= place and progress is not None and progress.is_empty

    # ------------------------------------------------------------ the loop

    async def step(self) -> None:
        try:
            if self._reading is None and not await self._begin():
                await self._wait(STANDS_BY)
            elif self._reading is not None and not await self._go_on(self._reading):
                await self._wait(self._interval)
        except BaseException:
            reading, self._reading = self._reading, None
            self._agenda.add(EVERYWHERE)  # without its slot the table gets the events
            if reading is not None:
                await _left(reading)
            raise

    async def _wait(self, seconds: float) -> None:
        def is_time() -> bool:
            return self.is_stopping or self._is_called or self._has_settled

        if self.progress is not None and not self.progress.is_empty:
            seconds = min(seconds, STEP)
        await self.monitor.wait_for(is_time, seconds)
        self._has_settled = False

    async def _begin(self) -> bool:
        """Get the slot's lock, and find out where to go on; False while another tail has it."""
        reading = await self._replication.read()
        if reading is None:
            return False
        try:
            state = await reading.state()
            if (trouble := self._replication.trouble(state)) is not None:
                raise trouble
            await self._find_place(reading, state.confirmed)
        except BaseException:
            await _left(reading)
            raise
        self._reading, self._read_to = reading, -1
        log.info("the tail reads the slot %s", self._replication.slot)
        return True

    async def _find_place(self, reading: Reading, confirmed: int) -> None:
        mark, ours = await reading.mark(), self._store.progress
        self._mark = None
        is_still_ours = mark is not None and mark.reader == self._owner
        if ours is None or not is_still_ours or ours.pass_by().place < confirmed:
            self._forget()
            passed = Passed(confirmed, 0, None if mark is None else mark.committed_at)
            if mark is not None and mark.confirmed >= confirmed:  # a crash of the server may have set the slot back
                passed = Passed(mark.confirmed, mark.passed, mark.committed_at)
            self._store.progress = Progress(self.runtime.lock(), passed, old_until=await reading.end())
            if mark is not None and mark.reader is not None:
                self._suspects, self._suspected = mark.in_flight, mark.reader
        await self._tell_mark(reading)

    def _forget(self) -> None:
        """Somebody else has read meanwhile, or this is the first time."""
        self._giving.clear()
        self._unsorted = []
        self._begun = self._suspects = 0
        self._has_more = True

    async def _go_on(self, reading: Reading) -> bool:
        """Whether there is more to do at once."""
        was_called, self._is_called = self._is_called, False
        await self._confirm(reading)
        found = await self._read(reading) if self._reads_on else False
        await self._sort()
        if was_called and not found:  # it may have been about something in the table
            self._agenda.add(EVERYWHERE, AGAIN)
        if chosen := await self._giving.choose():
            if self._begun + len(chosen) > AHEAD:
                await self._tell_mark(reading)
            self._begun += len(chosen)
            self._giving.hand_over(chosen)
        return self._has_more and self._reads_on

    @property
    def _reads_on(self) -> bool:
        return bool(self._router) and self._giving.has_room

    # ------------------------------------------------------------ reading

    async def _read(self, reading: Reading) -> bool:
        """Whether there was anything of ours."""
        progress = self._store.progress
        end = await reading.end()
        if progress is None or (end <= self._read_to and not self._has_more):
            return False
        if not self._has_more and progress.skip > CHEAP and not self._giving.is_empty:
            return False  # of what is written meanwhile there is no hurry to know
        changes, is_all = await reading.peek(progress.skip, BATCH, self._owner)
        before = len(self._unsorted)
        for change in changes:
            if (entry := progress.read(change)) is not None:
                self._unsorted.append(entry)
            elif isinstance(change, Wrote) and not change.is_captured:
                self._left_in_table(change, progress)
        self._has_more = not is_all
        if is_all:
            self._read_to = end
        if not changes:
            await self._skip_idle(reading, progress, end)
        return len(self._unsorted) > before

    def _left_in_table(self, change: Wrote, progress: Progress) -> None:
        """Delayed, or written while nobody kept the log: the poller finds it when it is due."""
        is_free = change.values["status"] == str(EventStatus.NEW.value) and change.values["locked_by"] is None
        if not is_free:
            return
        now, wait = progress.since(), 0.0
        if change.available_at is not None and now is not None:
            wait = max(0.0, (change.available_at - now).total_seconds())
        self._agenda.add(place_of(change.row.order_key), wait)

    async def _sort(self) -> None:
        """Let those wait that were not delivered before. What may have killed the reader before us is the table's,
        whose poller knows how to begin it with care."""
        entries, progress = self._unsorted, self._store.progress
        if progress is not None and (old := [entry for entry in entries if entry.is_old]):
            gone = set(await self._replication.touched([entry.key for entry in old]))
            for key in gone:
                progress.finish(key)
            if suspects := [entry for entry in old[: self._suspects] if entry.key not in gone]:
                await self._giving.to_table(suspects, self._suspected)
            self._suspects = max(0, self._suspects - len(old))
            entries = [entry for entry in entries if progress.of(entry.key) is entry]
        if self._read_to >= 0:  # whatever is old was read
            self._suspects = 0
        self._giving.add(entries)
        self._unsorted = []

    async def _skip_idle(self, reading: Reading, progress: Progress, end: int) -> None:
        """Others write a lot, and nothing of it is ours."""
        if progress.is_empty and end - progress.pass_by().place > IDLE:
            await reading.advance(end, None)
            progress.jump(end)

    # ------------------------------------------------------------ going on

    async def _confirm(self, reading: Reading) -> None:
        """Advance the slot to what is through; not too often while events keep coming."""
        progress, mark = self._store.progress, self._mark
        if progress is None or mark is None:
            return
        passed = progress.pass_by()
        if (passed.place, passed.changes) == (mark.confirmed, mark.passed):
            return
        if progress.is_empty or self.runtime.clock() - self._marked_at >= STEP:
            await self._tell_mark(reading)

    async def _tell_mark(self, reading: Reading) -> None:
        await self._set_mark(reading, self._owner)

    async def _set_mark(self, reading: Reading, reader: str | None) -> None:
        progress, before = self._store.progress, self._mark
        if progress is None:
            return
        place, changes, at = progress.pass_by()
        # As many more may be begun before the next mark.
        mark = Mark(place, changes, at, reader, progress.begun + AHEAD + self._suspects)
        if before is None or before.confirmed != place:
            await reading.advance(place, mark)
            progress.told()
        else:
            await reading.set_mark(mark)
        self._mark, self._marked_at, self._begun = mark, self.runtime.clock(), 0

    # ------------------------------------------------------------ ending

    async def finish(self) -> None:
        """When the workers have ended: what would come again although it is delivered, with what was passed by it, is
        avoided; what still runs keeps its lease; the rest stays in the log."""
        reading, self._reading = self._reading, None
        progress = self._store.progress
        if reading is None:
            return
        try:
            if progress is not None:
                running = [each.lease for each in self._held.running() if progress.of(each.lease.key) is not None]
                if running:
                    await self._store.take(running, self._lock_timeout)
                if behind := progress.left_behind():
                    await self._giving.to_table(behind, "")
                await self._set_mark(reading, self._suspected if self._suspects else None)
        finally:
            self._store.progress, self._mark = None, None
            await _left(reading)


async def _left(reading: Reading) -> None:
    try:
        await reading.close()
    except Exception as error:
        log.debug("the session that read the log is gone: %s", error)
