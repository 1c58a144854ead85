"""Promise 11: whatever is raised, the worker lives and the row is in a right state."""

from __future__ import annotations

from asyncio import CancelledError, Event
from typing import Any

from aftercommit import EventInterceptor, EventStatus, Fixed, MetricsExporter, WriterHook
from tests.support import Collector, World


def fail(*_: object) -> None:
    raise RuntimeError("out of order")


class BrokenMetrics(MetricsExporter):
    increment_hot_enqueued = increment_dispatch_success = increment_dispatch_dead = fail
    record_queue_depths = record_listener_duration_ms = fail


class BrokenHook(WriterHook):
    after_write = after_commit = fail


class BrokenInterceptor(EventInterceptor):
    def before_dispatch(self, event: Any) -> None:
        if event.event_type == "Intercepted":
            raise RuntimeError("not this one")

    def after_dispatch(self, event: Any, error: BaseException | None) -> None:
        raise RuntimeError("afterwards")


#: What handlers raise: errors, and what ends programs and tasks.
RAISED = [ValueError("x"), BaseExceptionGroup("many", [ValueError("x")]), SystemExit(3), KeyboardInterrupt()]


def test_promise_11_any_exception_leaves_the_worker_alive_and_the_row_right(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(
            worker_count=1,
            max_attempts=1,
            poll_interval="1h",
            retry_policy=Fixed("1ms"),
            metrics=BrokenMetrics(),
            writer_hook=BrokenHook(),
            interceptors=[BrokenInterceptor()],
        )
        errors = [*RAISED, CancelledError()]
        for number, error in enumerate(errors):
            outbox.handler(f"Raising{number}", id=f"raising{number}")(_raising(error))
        outbox.handler("Hanging", id="hanging", timeout="50ms")(hang)
        outbox.handler("Intercepted", id="intercepted")(lambda event: seen.add("intercepted"))
        outbox.handler("Undecodable", id="undecodable")(lambda event: seen.add("undecodable"))
        outbox.handler("Fine", id="fine")(lambda event: seen.add("fine"))
        async with outbox.transaction():
            await outbox.write("Undecodable", {})
        world.change("UPDATE outbox_event SET headers = 'no JSON'")
        bad = [f"Raising{number}" for number in range(len(errors))]
        async with outbox:
            for event_type in (*bad, "Hanging", "Intercepted", "Fine"):
                async with outbox.transaction():
                    await outbox.write(event_type, {})
            await world.until_settled(1)
            await world.until_settled(len(bad) + 3, status=3)
            await world.until_counted(outbox)
            assert (await outbox.stats()).counters["dispatch_success"] == 1
            assert outbox.health().is_healthy
        assert seen == ["fine"]
        statuses = {row["event_type"]: row["status"] for row in world.rows()}
        assert statuses.pop("Fine") == EventStatus.DONE
        assert set(statuses.values()) == {EventStatus.DEAD}
        assert all(row["locked_by"] is None for row in world.rows())

    world.run(scenario)


async def hang(event: Any) -> None:
    await Event().wait()


def _raising(error: BaseException) -> Any:
    def handler(event: Any) -> None:
        raise error

    return handler
