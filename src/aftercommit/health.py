"""How an outbox is: what its loops tell of themselves, and what the store answers when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from aftercommit.config import OutboxConfig
from aftercommit.events.claims import Backlog
from aftercommit.events.outcome import Ok, Raised, Result
from aftercommit.events.redact import error_text
from aftercommit.ports import EventStore, Replication, Runtime, SlotState, Task
from aftercommit.service import LONGEST_PAUSE, Countdown, Repeating, Service

if TYPE_CHECKING:
    from aftercommit.assembly import Assembly
    from aftercommit.polling.poller import OutboxPoller

#: Seconds for which an answer of the store is good enough for the next who asks. Probes come every few seconds; should
#: somebody ask without end, the store hears of it once a second.
FRESH: Final = 1.0

#: How often the slot is looked at by each process that writes for it or reads it.
WATCHED: Final = timedelta(seconds=10)

#: Bytes of its log that a server may keep for a slot that nobody reads, as after a deploy, and for one that is read.
UNREAD: Final = 128 * 1024**2
BEHIND: Final = 1024**3

#: A loop that has failed so often is not out of step for a moment.
_FAILS: Final = 3


class Health(msgspec.Struct, frozen=True):
    """How the outbox of this process is, and what is wrong with it.

    Three answers for those who run it: `is_started` for a startup probe, `is_live` for whoever would restart it,
    `is_ready` for whoever sends it work. A store that is away makes it not ready, and leaves it live.
    """

    #: Nothing is wrong.
    is_healthy: bool
    problems: tuple[str, ...] = ()
    #: What works, and may yet lose events: how the database keeps what it is given.
    warnings: tuple[str, ...] = ()
    #: start() has finished, and close() was not called.
    is_started: bool = False
    #: Every loop turns, or nothing was started: a restart would not help. A loop that fails and tries again turns.
    is_live: bool = True
    #: Started, live, and the loops that deliver get their answers from the store.
    is_ready: bool = False


NOT_STARTED: Final = Health(False, ("the outbox is not started",))


class Question:
    """Something that the store is asked: by one at a time, and nobody waits for the answer longer than he wants to."""

    def __init__(self, runtime: Runtime, name: str, ask: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._runtime = runtime
        self._name = name
        self._ask = ask
        self._monitor = runtime.monitor()
        self._task: Task | None = None
        self._is_asked = False
        self._asked_at = self._answered_at = float("-inf")
        self._answer: Result | None = None

    async def answer(self, timeout: float) -> Result | None:
        """A fresh one; None when there is none so many seconds after it was asked, be it by somebody else."""
        if not self._runtime.is_here():
            return Raised(RuntimeError("this is another event loop than the one that the outbox was started on"))
        with self._monitor:
            now = self._runtime.clock()
            if begins := not self._is_asked and now - self._answered_at > FRESH:
                self._is_asked, self._asked_at = True, now
        if begins:
            self._task = self._runtime.spawn(self._name, self._asking)
        left = max(0.0, self._asked_at + timeout - now)
        return await self._monitor.wait_for(lambda: None if self._is_asked else self._answer, left)

    async def _asking(self) -> None:
        answer: Result | None = None
        try:
            answer = Ok(await self._ask())
        except Exception as error:
            answer = Raised(error)
        finally:
            with self._monitor:
                self._is_asked, self._answer, self._answered_at = False, answer, self._runtime.clock()
                self._monitor.notify_all()

    async def stop(self, timeout: float) -> None:
        """One that the store does not answer is left behind."""
        if self._task is not None:
            await self._task.join(timeout)


class Checkup:
    """Looks after one start of an outbox."""

    def __init__(
        self, assembly: Assembly, runtime: Runtime, store: EventStore, poller: OutboxPoller, config: OutboxConfig
    ) -> None:
        self._assembly, self._runtime, self._store = assembly, runtime, store
        self._poller, self._config = poller, config

        async def ping() -> int:  # reads one entry of an index at most
            return await store.records.count_done(1)

        self._ping = Question(runtime, "aftercommit-ping", ping)
        self._backlog = Question(runtime, "aftercommit-backlog", store.records.backlog)

    # ------------------------------------------------------------ what is known here

    def health(self, services: Iterable[Service], *, has_started: bool) -> Health:
        """Asks no database. `services` are those that should run now."""
        services = list(services)
        ended = self._ended(services)
        failing = {service: _failing(service) for service in services if service.failures_in_a_row >= _FAILS}
        late = self._late(self._poller.progressed_at) if self._poller in services else []
        stuck = [
            f"{count} calls of the handler {name} are past its timeout and still run"
            for name, count in self._assembly.delivery.chain.limiters.stuck().items()
        ]
        starting = [] if has_started else ["start() has not finished yet"]
        problems = (*starting, *ended, *failing.values(), *stuck, *late)
        unready = [*starting, *ended, *late, *(service for service in failing if service.is_vital)]
        return Health(
            is_healthy=not problems,
            problems=problems,
            warnings=tuple(self._store.warnings),
            is_started=has_started,
            is_live=not ended and not (late and self._is_stuck()),
            is_ready=not unready,
        )

    def _ended(self, services: list[Service]) -> list[str]:
        """Loops that nobody has told to end, and that have: what ends them is no error that they could survive."""
        ended = [f"{service.name} has ended" for service in services if service.has_died]
        workers = self._assembly.dispatcher.workers
        if dead := sum(worker.has_ended for worker in workers):
            ended.append(f"{dead} of {len(workers)} workers have ended")
        return ended

    def _late(self, since: float) -> list[str]:
        idle = self._runtime.clock() - since
        return [f"the poller has not come round for {idle:.0f} s"] if idle > self._longest_round() else []

    def _is_stuck(self) -> bool:
        """The poller waits for nothing that it knows of: for a lock, or for an exporter or a trigger of the user's. A
        store may take as long as it likes."""
        # Behind a failure it pauses, which may be longer than its rounds are.
        return bool(self._late(self._poller.turned_at + LONGEST_PAUSE)) and not self._poller.is_asking

    def _longest_round(self) -> float:
        longest = max(self._config.max_poll_interval or self._config.poll_interval, self._poller.interval)
        return 3 * longest.total_seconds() + 1

    # ------------------------------------------------------------ what the store says

    async def asked(self, known: Health, *, max_backlog_age: timedelta | None, timeout: float) -> Health:
        """With the store's word: it answers within so many seconds, and nothing has been due for longer than that."""
        if not known.is_started:
            return known
        problem = await self._problem(max_backlog_age, timeout)
        if problem is None:
            return known
        return replace(known, is_healthy=False, is_ready=False, problems=(*known.problems, problem))

    async def _problem(self, max_backlog_age: timedelta | None, timeout: float) -> str | None:
        answer = await (self._ping if max_backlog_age is None else self._backlog).answer(timeout)
        if answer is None:
            return f"the store has not answered within {timeout:g} s"
        if isinstance(answer, Raised):
            return f"the store cannot be asked: {error_text(answer.error)}"
        backlog = answer.value
        if max_backlog_age is not None and isinstance(backlog, Backlog) and backlog.oldest_due > max_backlog_age:
            due, limit = backlog.oldest_due.total_seconds(), max_backlog_age.total_seconds()
            return f"the oldest event has been due for {due:.0f} s, longer than {limit:g} s"
        return None

    async def stop(self, time: Countdown) -> None:
        for question in (self._ping, self._backlog):
            await question.stop(time.left())


class SlotWatch(Repeating):
    """Looks after the replication slot that the table is read by: a server keeps its log for one that nobody reads
    until its disk is full."""

    is_vital = False

    def __init__(self, runtime: Runtime, replication: Replication) -> None:
        super().__init__(runtime, "aftercommit-slot-watch", WATCHED)
        self._replication = replication
        self._problem: str | None = None
        self.call()

    async def work(self) -> None:
        """One look."""
        self._problem = self._problem_of(await self._replication.state())

    def _problem_of(self, state: SlotState) -> str | None:
        if (trouble := self._replication.trouble(state)) is not None:
            return trouble.message
        slot, kept = self._replication.slot, f"{state.kept / 1024**2:,.0f} MB"
        if not state.is_capturing:
            return f"rows are not born for the slot {slot}: its trigger is not there; call create_schema()"
        if not state.is_read and state.kept > UNREAD:
            return (
                f"nobody reads the slot {slot}, and the server keeps {kept} of its log for it: start a tail, or drop it"
            )
        if state.kept > BEHIND:
            return f"the reader of the slot {slot} is behind, and the server keeps {kept} of its log for it"
        return None

    def seen(self, known: Health) -> Health:
        """With what was seen at the last look."""
        if self._problem is None:
            return known
        return replace(known, is_healthy=False, problems=(*known.problems, self._problem))


def _failing(service: Service) -> str:
    return f"{service.name} has failed {service.failures_in_a_row} times in a row"
