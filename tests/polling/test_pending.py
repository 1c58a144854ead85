"""`outbox.pending`, `outbox.records`, `outbox.cancel` and `outbox.replay_done`: rows as people find and mend them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit import EventStatus, InvalidName, InvalidOption, NoRetry
from tests.support import Collector, World


async def written(outbox: Any, *kinds: str, **options: Any) -> list[str]:
    async with outbox.transaction():
        return [await outbox.write(kind, {}, **options) for kind in kinds]


def ids(found: list[Any]) -> list[str]:
    return [each.event_id for each in found]


def test_what_waits_is_seen_page_by_page(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        later = await written(outbox, "Later", deliver_after="1h")
        given = await written(outbox, "A", "B", "A", key=7)
        assert ids(first := await outbox.pending.query(limit=3)) == given
        assert ids(await outbox.pending.query(limit=3, after=first[-1])) == later
        assert ids(await outbox.pending.query(event_type="A", key=7)) == [given[0], given[2]]
        assert await outbox.pending.count(key="7") == 3
        assert await outbox.pending.count(status=EventStatus.RETRY) == 0
        assert await outbox.pending.count(older_than="1h") == 0
        assert (first[0].status, first[0].locked_by, first[0].key) == (EventStatus.NEW, None, "7")

    world.run(scenario)


def test_dead_letters_are_seen_page_by_page_and_by_their_errors(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry())

        def fail(event: Any) -> None:
            raise (ValueError if event.event_type == "A" else KeyError)("no")

        outbox.register("A", fail)
        outbox.register("B", fail)
        given = await written(outbox, "A", "B", "A")
        await outbox.drain()
        first = await outbox.dead.query(limit=2)
        assert ids(first) == given[:2]
        assert ids(await outbox.dead.query(limit=2, after=first[-1])) == given[2:]
        assert ids(await outbox.dead.query(error="KeyError")) == [given[1]]
        assert await outbox.dead.replay_all(error="ValueError", rate=1000) == 2
        assert world.statuses() == [0, 3, 0]

    world.run(scenario)


def test_an_event_is_found_by_its_id_or_the_beginning_of_it(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        seen = Collector()
        outbox.handler("A", id="mail")(seen.add)
        outbox.handler("A", id="stock")(seen.add)
        (event_id,) = await written(outbox, "A", headers={"trace": "1"})
        found = await outbox.records.find(event_id)
        assert [(each.handler_id, each.payload, each.headers) for each in found] == [
            ("mail", "{}", {"trace": "1"}),
            ("stock", "{}", {"trace": "1"}),
        ]
        assert await outbox.records.find(event_id[:-3]) == found
        assert await outbox.records.find(event_id[:5]) == [], "too short to stand for an id"
        assert await outbox.records.find("unknown") == []
        other = await written(outbox, "Other")
        with pytest.raises(InvalidOption, match="several events begin with") as caught:
            await outbox.records.find(event_id[:6])
        assert other[0] in str(caught.value)
        with pytest.raises(InvalidOption, match="empty"):
            await outbox.records.find("")

    world.run(scenario)


def test_rows_are_listed_by_status_and_summed_up(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry(), delete_completed=False)

        def handle(event: Any) -> None:
            if event.event_type == "Bad":
                raise ValueError("no")

        outbox.register("Good", handle)
        outbox.register("Bad", handle)
        done = await written(outbox, "Good", "Good")
        dead = await written(outbox, "Bad")
        await outbox.drain()
        new = await written(outbox, "Good", "Bad", deliver_after="1h")
        query = outbox.records.query
        assert ids(page := await query(status=EventStatus.DONE, limit=1)) == done[1:]
        assert ids(await query(status=EventStatus.DONE, after=page[0])) == done[:1]
        assert ids(await query(status=EventStatus.DEAD)) == dead
        assert sorted(ids(await query(status=EventStatus.NEW))) == sorted(new)
        assert ids(await query()) == [*done, *dead, *new][::-1]
        summary = await outbox.records.summary()
        assert [(each.event_type, each.new, each.retry, each.dead, each.oldest_due) for each in summary.types] == [
            ("Bad", 1, 0, 1, None),
            ("Good", 1, 0, 0, None),
        ]
        assert not summary.is_partial
        await written(outbox, "Good")
        assert (await outbox.records.summary()).types[1].oldest_due is not None

    world.run(scenario)


def test_what_makes_no_sense_is_refused_before_anything_is_asked(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        for wrong in ({"limit": 0}, {"after": 7}, {"error": 7}, {"handler_id": 7}, {"colour": "red"}):
            for query in (outbox.dead.query, outbox.pending.query, outbox.records.query):
                with pytest.raises(InvalidOption, match=next(iter(wrong))):
                    await query(**wrong)
        for rate in (0, -1, True, "50", float("nan"), float("inf")):
            with pytest.raises(InvalidOption, match="rate"):
                await outbox.dead.replay_all(rate=rate)
        with pytest.raises(InvalidName, match="key"):
            await outbox.pending.query(key="x" * 256)
        with pytest.raises(InvalidOption, match="older_than"):
            await outbox.pending.query(older_than="long")
        with pytest.raises(InvalidOption, match="status"):
            await outbox.pending.query(status=EventStatus.DEAD)
        with pytest.raises(InvalidOption, match="status"):
            await outbox.records.query(status="DEAD")
        with pytest.raises(InvalidOption, match="at_most"):
            await outbox.records.summary(at_most=0)

    world.run(scenario)


def test_a_cancelled_event_is_never_delivered(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(delete_completed=False), Collector()
        outbox.register("A", seen.add)
        first, second = await written(outbox, "A", "A")
        assert await outbox.cancel(first) is True
        assert await outbox.cancel(first) is False
        assert await outbox.cancel("unknown") is False
        await outbox.drain()
        assert ids(list(seen)) == [second]
        assert await outbox.cancel(second) is False, "it was delivered"
        assert [(row["status"], row["last_error"]) for row in world.rows()] == [(1, "cancelled"), (1, None)]

    world.run(scenario)


def test_what_is_being_delivered_is_not_cancelled(world: World) -> None:
    """Nor what waits in the memory of this process: it holds that, too."""

    async def scenario() -> None:
        outbox, answers = world.outbox(worker_count=1, delete_completed=False), Collector()

        @outbox.handler("A")
        async def handle(event: Any) -> None:
            answers.add(await outbox.cancel(event.event_id))

        async with outbox:
            await written(outbox, "A", "A")
            await world.until_settled(2)
        assert list(answers) == [False, False]
        assert [row["last_error"] for row in world.rows()] == [None, None]

    world.run(scenario)


def test_a_key_goes_on_when_its_first_event_is_cancelled(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(ordered=True), Collector()
        outbox.register("A", seen.add)
        async with outbox:
            (first,) = await written(outbox, "A", key="k", deliver_after="1h")
            (second,) = await written(outbox, "A", key="k")
            assert await outbox.cancel(first) is True
            await seen.reach(1)
        assert ids(list(seen)) == [second]

    world.run(scenario)


def test_a_done_event_is_delivered_again_when_somebody_wants_it(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(delete_completed=False), Collector()
        outbox.register("A", seen.add)
        async with outbox:
            (event_id,) = await written(outbox, "A")
            await seen.reach(1)
            await world.until_settled(1)
            assert await outbox.replay_done("unknown") is False
            before = world.rows()[0]["lease_epoch"]
            assert await outbox.replay_done(event_id) is True
            await seen.reach(2)
            await world.until_settled(1)
        assert seen[0] == seen[1]
        row = world.rows()[0]
        assert (row["attempts"], row["abandoned"]) == (0, 0)
        assert row["lease_epoch"] > before

    world.run(scenario)


def test_an_age_is_the_time_since_the_event_was_written(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        old, _ = await written(outbox, "A", "A", deliver_after="1h")
        hours = timedelta(hours=3) // timedelta(microseconds=1)
        world.change("UPDATE outbox_event SET created_at = created_at - ? WHERE event_id = ?", hours, old)
        assert ids(await outbox.pending.query(older_than="2h")) == [old]
        assert await outbox.pending.count(older_than="4h") == 0

    world.run(scenario)
