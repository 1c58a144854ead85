"""A real store that fails on demand, and the parts of an outbox put together by hand."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from aftercommit import EventEnvelope, Fixed, OutboxConfig, service
from aftercommit.delivery import worker as dispatcher
from aftercommit.delivery.agenda import THE_REST, Agenda, Place
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding, Unsettled
from aftercommit.events.claims import Claimed, Lease, RowKey
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import RELEASE, Outcome
from aftercommit.events.payloads import PayloadTypes
from aftercommit.handlers.routing import Router
from aftercommit.handlers.set import HandlerSet
from aftercommit.hooks import MetricsExporter
from aftercommit.meter import Meter
from aftercommit.ports import Colour, Runtime
from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.runtime.threads import ThreadRuntime
from aftercommit.stores.sqlite.target import sqlite_from_url
from tests.support import PATIENCE, Collector, Signal, World


class Unreachable(Exception):
    """The store cannot be reached; no row is to blame."""


class RowFault(Exception):
    """The store refused a value of some row."""


@dataclass
class Fault:
    """What happens to the next calls of one method."""

    error: Exception | None
    #: The store does it, and then fails or waits to say so.
    late: bool
    times: float
    when: Callable[..., bool]
    #: Wait for this.
    release: Signal | None
    entered: Signal = field(default_factory=Signal)
    fired: int = 0


class FaultyStore:
    """Passes every call on, unless a fault was ordered for it. `calls` has the arguments of all that came."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: dict[str, Collector] = defaultdict(Collector)
        self._faults: dict[str, list[Fault]] = defaultdict(list)

    def fail(
        self,
        method: str,
        error: Exception | None = None,
        *,
        times: float = 1,
        late: bool = False,
        when: Callable[..., bool] = lambda *_: True,
    ) -> Fault:
        """Let the next calls raise; with `late` after the work was done and committed."""
        return self._order(method, Fault(error or Unreachable("the database is away"), late, times, when, None))

    def hold(self, method: str, *, times: float = 1, late: bool = False) -> Fault:
        """Let the next calls wait for `release` before they begin; with `late` before they answer."""
        return self._order(method, Fault(None, late, times, lambda *_: True, Signal()))

    def heal(self) -> None:
        self._faults.clear()

    def _order(self, method: str, fault: Fault) -> Fault:
        self._faults[method].append(fault)
        return fault

    async def _through(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        self.calls[method].add(arguments)
        work = partial(getattr(self.inner, method), **keywords)
        fault = next((each for each in self._faults[method] if each.times > 0 and each.when(*arguments)), None)
        if fault is None:
            return await work(*arguments)
        fault.times -= 1
        fault.fired += 1
        result = await work(*arguments) if fault.late else None
        fault.entered.set()
        if fault.release is not None:
            await fault.release.wait()
        if fault.error is not None:
            raise fault.error
        return result if fault.late else await work(*arguments)

    async def open(self) -> None:
        await self._through("open")

    async def claim(self, request: Any) -> Any:
        return await self._through("claim", request)

    async def settle(self, settlements: Any) -> Any:
        return await self._through("settle", settlements)

    async def renew(self, leases: Any, lock_timeout: Any) -> Any:
        return await self._through("renew", leases, lock_timeout)

    async def mark_suspect(self, lease: Any, count: int = 1) -> Any:
        return await self._through("mark_suspect", lease, count)

    def is_row_fault(self, error: Exception) -> bool:
        return isinstance(error, RowFault) or self.inner.is_row_fault(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def faulty_store(world: World, **options: Any) -> FaultyStore:
    """Over the world's own file."""
    return FaultyStore(sqlite_from_url(world.url, colour_of(world), **options))


def colour_of(world: World) -> Colour:
    return Colour.ASYNC if world.is_async else Colour.BLOCKING


def new_runtime(world: World, threads: int = 4) -> Any:
    """Call it inside a scenario; close it there."""
    return AsyncioRuntime(threads) if world.is_async else ThreadRuntime()


def with_runtime(world: World, scenario: Callable[[Any], Any], threads: int = 4) -> Any:
    """Run a scenario that gets a runtime."""

    async def whole() -> Any:
        runtime = new_runtime(world, threads)
        try:
            return await scenario(runtime)
        finally:
            await runtime.close()

    return world.run(whole)


class Ledger:
    """Takes outcomes in the settler's place."""

    has_space = True

    def __init__(self, held: Held | None = None) -> None:
        self.entries = Collector()
        self._held = held

    def add(self, holding: Holding, outcome: Outcome) -> tuple[Holding, Outcome]:
        holding.is_reported = True
        self.entries.add((holding, outcome))
        return holding, outcome

    def release(self, holdings: Iterable[Holding]) -> None:
        for holding in holdings:
            self.add(holding, RELEASE)

    def let_go(self, holding: Holding, epoch: int) -> None:
        if self._held is not None:
            self.release(self._held.let_go([Unsettled(holding, RELEASE, epoch)])[1])

    async def answered(self, entry: tuple[Holding, Outcome]) -> None:
        return

    async def space(self) -> None:
        return

    def let_all_pass(self) -> None:
        return

    def outcomes(self) -> dict[str, Outcome]:
        return {holding.lease.key.event_id: outcome for holding, outcome in self.entries}


class Loud(MetricsExporter):
    """Keeps every call of an exporter as (method, arguments)."""

    def __init__(self) -> None:
        self.calls = Collector()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("increment_", "record_")):
            return lambda *values: self.calls.add((name, values))
        return super().__getattribute__(name)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [values for method, values in self.calls if method == name]


def meter_of(runtime: Runtime, exporter: MetricsExporter | None = None) -> Meter:
    return Meter(runtime, exporter or MetricsExporter())


def claimed(
    runtime: Runtime,
    event: EventEnvelope | None = None,
    *,
    event_type: str = "Happened",
    owner: str = "me",
    epoch: int = 1,
    valid_for: float = 60.0,
    **fields: Any,
) -> Claimed:
    """An event under a lease that holds for a while on the runtime's clock."""
    event = event or EventEnvelope.of_json(event_type, "{}")
    lease = Lease(RowKey(event.event_id, ""), owner, epoch, runtime.clock() + valid_for)
    return Claimed(event, lease, fields.pop("position", 0), None, **fields)


def router_of(registry: Any, handlers: HandlerSet | None = None) -> Router:
    """Who receives what, without an outbox around it."""
    return Router(registry, (handlers or HandlerSet())._roster, PayloadTypes())


def held_of(runtime: Runtime, *rows: Claimed) -> Held:
    held = Held(runtime)
    held.admit(rows)
    return held


class Told:
    """Stands for an agenda: keeps what it is told to look at."""

    def __init__(self, on_room: Callable[[], None] = lambda: None) -> None:
        self.places = Collector()
        self._on_room = on_room

    def add(self, place: Place, after: float = 0.0) -> bool:
        self.places.add((place, after))
        if place == THE_REST:
            self._on_room()
        return True

    def freed(self, keys: Collection[OrderKey]) -> None:
        self.places.add((list(keys), 0.0))


def lanes_of(
    runtime: Runtime, *, hot: int = 10, cold: int = 10, on_room: Callable[[], None] = lambda: None
) -> Lanes[Any]:
    """Lanes that tell nobody, or `on_room`, when there is room."""
    return Lanes(runtime, Told(on_room), hot_capacity=hot, cold_capacity=cold)  # type: ignore[arg-type]


def take_now(lanes: Lanes[Any]) -> Any:
    """The next item that may run now; None when there is none."""
    found = lanes._next()
    return found[0] if found else None


def agenda_of(runtime: Runtime, held: Held | None = None, *, horizon: float = 5.0, interval: float = 3600.0) -> Agenda:
    times = {"interval": timedelta(seconds=interval), "horizon": timedelta(seconds=horizon)}
    return Agenda(runtime, Held(runtime) if held is None else held, **times)


def plain_config(**options: Any) -> OutboxConfig:
    """As an outbox would have it: three attempts, five seconds apart, and no grace for what nobody can handle."""
    defaults = {"retry_policy": Fixed("5s"), "max_attempts": 3, "unroutable_grace": 0}
    return OutboxConfig(**{**defaults, **options})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import it where loops fail on purpose: their pauses begin at 5 ms instead of 50, a last chance is 100 ms."""
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(dispatcher, "LAST_CHANCE", 0.1)


_bystanders: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def count_from_here() -> None:
    """Import it to leave out of `ours` what tests before this one have left behind."""
    _bystanders.clear()
    _bystanders.update(threading.enumerate())


def ours() -> set[str]:
    """The names of the threads that belong to an outbox of this test."""
    threads = set(threading.enumerate()) - _bystanders
    return {thread.name for thread in threads if thread.name.startswith("aftercommit")}


def other_tasks() -> set[str]:
    """The names of all tasks of this loop but the current one; none without a loop."""
    if not _has_loop():
        return set()
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def keys_of(rows: Collection[Any]) -> list[str]:
    """The event ids of claims, leases, settlements or holdings."""
    found = []
    for row in rows:
        lease = getattr(row, "lease", row)
        found.append(lease.key.event_id)
    return found


async def until(predicate: Callable[[], Any], timeout: float = PATIENCE) -> None:
    """Wait for a state that sends no signal."""
    watch = threading.Event()

    def look() -> None:
        for _ in range(int(timeout / 0.005)):
            if predicate():
                return
            watch.wait(0.005)
        raise AssertionError("it never came to that")

    await (asyncio.to_thread(look) if _has_loop() else _at_once(look))


async def _at_once(function: Callable[[], None]) -> None:
    function()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
