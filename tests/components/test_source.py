"""Where an event came from is seen by whoever meets it: HOT from memory, COLD out of the table."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import (
    AfterCommitHook,
    EventEnvelope,
    EventInterceptor,
    EventMetadata,
    Fixed,
    MetricsExporter,
    QueuedEvent,
    Source,
    WriterHook,
)
from tests.support import Collector, World


class Watching(EventInterceptor):
    def __init__(self, seen: Collector) -> None:
        self._seen = seen

    def before_dispatch(self, event: EventEnvelope, queued: QueuedEvent | None = None) -> None:
        assert queued is not None
        assert queued.envelope is event
        self._seen.add(("before", queued.source, queued.attempts))

    def after_dispatch(
        self, event: EventEnvelope, error: BaseException | None, queued: QueuedEvent | None = None
    ) -> None:
        assert queued is not None
        self._seen.add(("after", queued.source, queued.attempts))


@pytest.mark.parametrize(("hot_path", "first"), [(True, Source.HOT), (False, Source.COLD)])
def test_interceptors_and_metadata_tell_hot_from_cold(world: World, hot_path: bool, first: Source) -> None:
    """H2: the first attempt comes from memory, its retry out of the table."""

    async def scenario() -> None:
        seen, told = Collector(), Collector()
        outbox = world.outbox(
            hot_path=hot_path, interceptors=[Watching(seen)], retry_policy=Fixed("1ms"), poll_interval="50ms"
        )

        @outbox.handler("Happened")
        def fail_once(event: EventEnvelope, meta: EventMetadata) -> None:
            told.add((meta.source, meta.attempt))
            if meta.attempt == 1:
                raise ValueError("once")

        async with outbox:
            async with outbox.transaction():
                await outbox.write("Happened", "{}")
            await seen.reach(4)
        assert list(told) == [(first, 1), (Source.COLD, 2)]
        assert list(seen) == [
            *[("before", first, 0), ("after", first, 0)],
            *[("before", Source.COLD, 1), ("after", Source.COLD, 1)],
        ]

    world.run(scenario)


def test_an_interceptor_without_that_parameter_gets_what_it_always_got(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(interceptors=[EventInterceptor.before(lambda event, mine="mine": seen.add(mine))])
        outbox.register("Happened", seen.add)
        async with outbox:
            async with outbox.transaction():
                await outbox.write("Happened", "{}")
            await seen.reach(2)
        assert seen[0] == "mine"

    world.run(scenario)


@pytest.mark.parametrize("hook", [AfterCommitHook.NOOP, WriterHook(), None])
def test_a_hook_that_does_nothing_registers_nothing(world: World, hook: WriterHook | None) -> None:
    """TC-058"""

    async def scenario() -> None:
        outbox = world.outbox(wiring="writer_only", writer_hook=hook)
        async with outbox.transaction() as tx:
            await outbox.write("Happened", "{}")
            inner: Any = getattr(tx, "plain", tx)
            assert (inner._on_commit, inner._on_rollback) == ([], [])

    world.run(scenario)


def test_a_class_of_ones_own_with_on_commit_is_a_hook(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()

        class Telling(AfterCommitHook):
            def on_commit(self, event: EventEnvelope) -> None:
                seen.add(event.event_type)

        outbox = world.outbox(wiring="writer_only", writer_hook=Telling())
        async with outbox.transaction():
            await outbox.write("One", "{}")
            await outbox.write("Two", "{}")
            assert not seen
        assert list(seen) == ["One", "Two"]

    world.run(scenario)


def test_the_exporter_that_exports_nothing_can_be_named(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(metrics=MetricsExporter.NOOP)
        async with outbox:
            assert not outbox._engine.meter.exports

    world.run(scenario)
