"""The process of a test: the real engine, which delivers only when it is told to, fails where it is told to, and can
die in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, Self, cast, get_args

from aftercommit.config import OutboxConfig
from aftercommit.effects import HandlerEffect
from aftercommit.engine import Engine
from aftercommit.errors import InvalidOption
from aftercommit.events.claims import Claim, ClaimRequest, Lease, RowKey, Settlement
from aftercommit.events.order import Heads, HeadsRequest, KeyClaimRequest
from aftercommit.events.outcome import Dead, Defer, Done, Raised, Result, Retry
from aftercommit.handlers.routing import Router
from aftercommit.polling.manual import DrainResult, ManualDelivery
from aftercommit.ports import EventStore, Runtime
from aftercommit.runtime.threads import ThreadRuntime
from aftercommit.service import Service
from aftercommit.testing.clock import VirtualClock

#: Where a process can be made to die.
Point = Literal["after_claim", "after_handler", "before_settle"]
POINTS: Final[tuple[str, ...]] = get_args(Point)


class ProcessDied(BaseException):
    """What a call ends with that its process did not live to see. Nobody hears of it but the dead engine."""


class Mortal:
    """A store as one process sees it. Once that process is dead, nothing that is left of it reaches the table."""

    def __init__(self, store: EventStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self.is_dead = False
        #: Where it dies; None: it lives.
        self.dies: Point | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def die_if(self, point: Point) -> bool:
        """Whether the process is dead, or dies here."""
        if self.dies == point:
            self.is_dead, self.dies = True, None
        return self.is_dead

    async def claim(self, request: ClaimRequest) -> Claim:
        return Claim(()) if self.is_dead else self._survived(await self._store.claim(request))

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        return Claim(()) if self.is_dead else self._survived(await self._store.claim_keys(request))

    def _survived(self, claim: Claim) -> Claim:
        return Claim(()) if claim.rows and self.die_if("after_claim") else claim

    async def heads(self, request: HeadsRequest) -> Heads:
        return Heads(()) if self.is_dead else await self._store.heads(request)

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        if self.die_if("before_settle"):
            return ()
        refused = await self._store.settle(settlements)
        self._watch.outcomes.update(type(each.outcome) for each in settlements if each.lease.key not in refused)
        return refused

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        return () if self.is_dead else await self._store.renew(leases, lock_timeout)

    async def mark_suspect(self, lease: Lease, count: int = 1) -> bool:
        return False if self.is_dead else await self._store.mark_suspect(lease, count)


class Failure:
    """A failure that a test has put before a function. As a context manager it ends with the block."""

    def __init__(self, name: str, error: BaseException | type[BaseException], times: int | None) -> None:
        self._error = error
        self._name = name
        #: How often it will still be raised; None: each time.
        self.left = times
        #: How often it was raised.
        self.count = 0
        self._made()  # what cannot be made is refused before anything runs

    def stop(self) -> None:
        """From now on the function runs as it is."""
        self.left = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop()

    def raised(self) -> BaseException | None:
        """What the function raises now, instead of running; None when it runs."""
        if self.left == 0:
            return None
        self.count += 1
        self.left = None if self.left is None else self.left - 1
        return self._made()

    def _made(self) -> BaseException:
        if isinstance(self._error, BaseException):
            return self._error
        try:
            return self._error(f"outbox_test.fail({self._name})")
        except TypeError as error:
            raise InvalidOption(
                f"{self._error.__name__} cannot be made with a text alone ({error})",
                fix=f"pass an error that is made already: fail({self._name}, {self._error.__name__}(…))",
            ) from error

    def __repr__(self) -> str:
        return f"<failure of {self._name}, raised {self.count} times>"


class Watch:
    """Stands between the engine and what users wrote: counts calls, puts failures before them, and ends the process."""

    def __init__(self) -> None:
        #: By function, in the order in which they were made.
        self.failures: list[tuple[Callable[..., object], Failure]] = []
        #: Fallbacks and interceptors, whose calls are no attempts.
        self.others: list[Callable[..., object]] = []
        self.begin()

    def begin(self) -> None:
        """Count anew."""
        self.attempts = 0
        self.errors: list[BaseException] = []
        #: How many rows ended in which way, as far as the table knows.
        self.outcomes: Counter[type] = Counter()

    async def call(
        self, store: Mortal, function: Callable[..., object], call: Callable[[], Coroutine[Any, Any, Result]]
    ) -> Result:
        if store.is_dead:
            return Raised(ProcessDied(), interrupted=True)
        is_attempt = function not in self.others
        self.attempts += is_attempt
        error = self._injected(function)
        result = await call() if error is None else Raised(error)
        if is_attempt and store.die_if("after_handler"):
            return Raised(ProcessDied(), interrupted=True)
        if is_attempt and isinstance(result, Raised):
            self.errors.append(result.error)
        return result

    def _injected(self, function: Callable[..., object]) -> BaseException | None:
        for failing, failure in self.failures:
            if failing == function and (error := failure.raised()) is not None:
                return error
        return None


class _Still:
    """A service that the kit does not run: no lease runs out while the clock stands still."""

    async def join(self, timeout: float | None) -> bool:
        return True


class Still:
    """A runtime whose clock is the test's, which runs nothing beside the caller, and which tells the watch of calls."""

    #: Whether a call that takes too long is left behind, which needs a thread of its own.
    keeps_timeouts = True

    def watched_by(self, clock: VirtualClock, watch: Watch, store: Mortal, *, keeps_timeouts: bool = True) -> Self:
        self.clock = clock.elapsed
        self._watch, self._store, self.keeps_timeouts = watch, store, keeps_timeouts
        return self

    def spawn(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Any:
        return _Still()

    async def call(
        self, function: Callable[..., object], *arguments: object, context: Context, **limits: Any
    ) -> Result:
        def call() -> Coroutine[Any, Any, Result]:
            kept = limits if self.keeps_timeouts else {}
            called: Coroutine[Any, Any, Result] = super(Still, self).call(  # type: ignore[misc]
                function, *arguments, context=context, **kept
            )
            return called

        if not arguments or not isinstance(effect := arguments[0], HandlerEffect):
            return await self._watch.call(self._store, function, call)
        result = await self._watch.call(self._store, effect.handler, call)
        self._watch.outcomes[Done] += effect.has_settled
        return result


class StillThreads(Still, ThreadRuntime):
    """For Outbox: everything happens in the thread of the test."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What drain() of the kit did."""

    #: Calls of handlers and listeners. A fallback's is none.
    attempts: int
    #: Rows that are done now: a handler has returned, or its fallback has.
    delivered: int
    #: Attempts that failed and were followed by a delay.
    retried: int
    #: Rows that were put off without counting an attempt: RetryAfter, limits, an outage.
    deferred: int
    #: Rows that are dead now.
    dead: int
    #: The process died where crash_at() wanted it to.
    crashed: bool = False
    #: What handlers raised, in order.
    errors: tuple[BaseException, ...] = ()

    @classmethod
    def of(cls, watch: Watch, *, crashed: bool) -> Drained:
        of = watch.outcomes
        return cls(
            watch.attempts, of[Done], of[Retry], of[Defer], of[Dead], crashed=crashed, errors=tuple(watch.errors)
        )


class Process:
    """One process that delivers. After its death there is another, which knows nothing of it."""

    def __init__(
        self,
        make_runtime: Callable[[Mortal], Runtime],
        store: EventStore,
        watch: Watch,
        router: Router,
        config: OutboxConfig,
    ) -> None:
        self.store = Mortal(store, watch)
        self.runtime = make_runtime(self.store)
        self._engine = Engine(self.runtime, cast("EventStore", self.store), router, config)

    async def drain(self) -> None:
        await self._engine.manual.drain(None, is_started=False)


# ---------------------------------------------------------------- the outbox itself


class Quiet(Engine):
    """The engine of an outbox under test. It writes; start() starts nothing, so that a test decides when events are
    delivered, and a program that starts its outbox can be tested as it is."""

    def __init__(self, runtime: Runtime, store: EventStore, router: Router, config: OutboxConfig) -> None:
        super().__init__(runtime, store, router, config)
        self.manual = ByHand(
            runtime, store, router, self.poller, self.dispatcher, self.settler, self.held, self.meter, config
        )

    async def start(self) -> None:
        await self._store.open()
        self.is_started = self.has_started = True

    async def stop(self) -> None:
        self.is_started = self.has_started = False
        await self.runtime.close()

    def _services(self) -> list[Service]:
        """Nothing has to run, and so nothing stands still."""
        return []


class ByHand(ManualDelivery):
    """There are no services that could do it."""

    async def poll(self, *, is_started: bool) -> int:
        return await super().poll(is_started=False)

    async def drain(self, timeout: float | None, *, is_started: bool) -> DrainResult:
        return await super().drain(timeout, is_started=False)
