"""`outbox.records.failures`: why deliveries failed, with the traceback, without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import DeadLetter, Discard, Fixed, NoRetry, RetryAfterError
from aftercommit.delivery.outcomes import note_of
from aftercommit.events.redact import MAX_TRACEBACK_LENGTH
from tests.support import World


async def written(outbox: Any, kind: str = "A") -> str:
    async with outbox.transaction():
        return str(await outbox.write(kind, {}))


async def die(outbox: Any) -> None:
    """Until nothing is left to be tried again."""
    while await outbox.pending.count():
        await outbox.drain()


def test_each_failed_attempt_is_kept_with_its_traceback(any_server_world: World) -> None:
    """On every store; and over a replay."""
    world = any_server_world

    async def scenario() -> None:
        outbox = world.outbox(retry_policy=Fixed("1ms", max_attempts=2))

        @outbox.handler("A", id="charge")
        def charge(event: Any) -> None:
            raise ConnectionError("postgresql://shop:hunter2@db/shop is away")

        event_id = await written(outbox)
        await die(outbox)
        assert await outbox.dead.replay(event_id)
        await die(outbox)
        found = await outbox.records.failures(event_id)
        assert [(each.attempt, each.handler, each.error_class) for each in found] == [
            (1, "charge", "ConnectionError"),
            (2, "charge", "ConnectionError"),
        ] * 2
        assert {each.instance for each in found} == {outbox.owner_id}
        first = found[0]
        assert first.message == "postgresql://shop:***@db/shop is away"
        assert "in charge" in first.traceback
        assert first.traceback.endswith("ConnectionError: postgresql://shop:***@db/shop is away")
        assert "hunter2" not in repr(found)
        assert await outbox.records.failures(event_id, "") == found
        assert await outbox.records.failures(event_id, "other") == []

    world.run(scenario)


def test_a_fallback_that_fails_is_a_failure_too(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry())

        @outbox.handler("A", id="charge")
        async def charge(event: Any) -> None:
            raise ValueError("no")

        @charge.fallback
        async def ticket(event: Any, failure: Any) -> None:
            raise KeyError("neither")

        event_id = await written(outbox)
        await outbox.drain()
        found = await outbox.records.failures(event_id)
        assert [(each.attempt, each.handler, each.error_class, each.message) for each in found] == [
            (1, "charge", "ValueError", "no"),
            (1, "fallback of charge", "KeyError", "'neither'"),
        ]

    world.run(scenario)


def test_each_handler_of_a_shared_row_has_its_own(world: World) -> None:
    async def scenario() -> None:
        writer = world.outbox(wiring="writer_only")
        outbox = world.outbox(retry_policy=NoRetry())

        def fail(event: Any) -> None:
            raise ValueError("no")

        outbox.handler("A", id="mail")(fail)
        outbox.handler("A", id="stock")(fail)
        outbox.handler("A", id="fine")(lambda event: None)
        event_id = await written(writer)
        await outbox.drain()
        found = await outbox.records.failures(event_id)
        assert [(each.handler_id, each.handler) for each in found] == [("", "mail"), ("", "stock")]

    world.run(scenario)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (Discard("not ours"), []),
        (DeadLetter("no use"), [(1, "DeadLetter", "no use")]),
        (RetryAfterError("1h", "later"), [(1, "RetryAfterError", "later")]),
    ],
    ids=["discard", "dead letter", "retry"],
)
def test_what_a_handler_asks_for_by_raising(world: World, error: Exception, wanted: list[Any]) -> None:
    async def scenario() -> None:
        outbox = world.outbox()

        def handle(event: Any) -> None:
            raise error

        outbox.register("A", handle)
        event_id = await written(outbox)
        await outbox.drain()
        found = await outbox.records.failures(event_id)
        assert [(each.attempt, each.error_class) for each in found] == [each[:2] for each in wanted]
        assert all(text in each.message for each, (_, _, text) in zip(found, wanted, strict=True))

    world.run(scenario)


def test_what_nobody_could_be_called_for_has_no_attempt(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(wiring="single_node")
        outbox.register("Other", print)
        event_id = await written(outbox)
        await outbox.drain()
        (found,) = await outbox.records.failures(event_id)
        assert (found.attempt, found.handler, found.error_class) == (0, "", "UnroutableEvent")

    world.run(scenario)


def test_what_is_delivered_and_deleted_leaves_no_failure(world: World) -> None:
    async def scenario() -> None:
        outbox, calls = world.outbox(retry_policy=Fixed("1ms"), delete_completed=True), []

        def handle(event: Any) -> None:
            calls.append(event)
            if len(calls) == 1:
                raise ValueError("not yet")

        outbox.register("A", handle)
        event_id = await written(outbox)
        await die(outbox)
        assert (len(calls), world.rows()) == (2, [])
        assert await outbox.records.failures(event_id) == []
        assert world.rows("SELECT * FROM outbox_failure") == []

    world.run(scenario)


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    def deep(depth: int) -> None:
        if depth == 0:
            raise ValueError("token=abc " + "y" * 50)
        exec(f"step_{depth}(depth - 1)", {f"step_{depth}": deep, "depth": depth})  # noqa: S102  (no two lines alike)

    with pytest.raises(ValueError, match="y") as caught:
        deep(200)
    note = note_of(caught.value, attempt=3, handler="x" * 300)
    assert (note.attempt, len(note.handler), note.error_class) == (3, 255, "ValueError")
    assert note.traceback is not None
    assert len(note.traceback) == MAX_TRACEBACK_LENGTH
    assert note.traceback.startswith("Traceback (most recent call last)")
    assert note.traceback.endswith("ValueError: token=*** " + "y" * 50)
    assert note_of(ValueError("a\x00b")).traceback is None, "it was never raised"
    assert "\x00" not in note_of(ValueError("a\x00b")).message
