"""after_commit and after_rollback: one kind fires, once, in order, all of it, when everything is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aftercommit import EventStatus, NotInTransaction, Outbox
from aftercommit.transactions.owned import run_all
from tests.support import World
from tests.transactions.kit import Deliberate, free_slots, listening, payloads


def raising(error: BaseException) -> Any:
    def callback() -> None:
        raise error

    return callback


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_only_one_kind_fires_and_only_at_the_end_and_in_order(world: World, ending: str) -> None:
    """TC-061 to TC-063."""

    async def scenario() -> None:
        outbox = world.outbox()
        fired: list[str] = []
        async with outbox.transaction() as tx:
            for number in range(3):
                tx.after_commit(lambda number=number: fired.append(f"commit {number}"))
                tx.after_rollback(lambda number=number: fired.append(f"rollback {number}"))
            assert fired == []
            await getattr(tx, ending)()
            assert fired == [f"{ending} {number}" for number in range(3)]
        assert len(fired) == 3

    world.run(scenario)


def test_callbacks_of_a_released_block_keep_their_place(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        fired: list[str] = []
        async with outbox.transaction() as outer:
            outer.after_commit(lambda: fired.append("before"))
            async with outbox.transaction() as inner:
                inner.after_commit(lambda: fired.append("inside"))
                outer.after_commit(lambda: fired.append("inside, on the outer"))
            outer.after_commit(lambda: fired.append("after"))
        assert fired == ["before", "inside", "inside, on the outer", "after"]

    world.run(scenario)


@pytest.mark.parametrize("callback", [None, "print", 7])
def test_what_cannot_be_called_is_no_callback(world: World, callback: Any) -> None:
    """TC-079."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            for register in (tx.after_commit, tx.after_rollback):
                with pytest.raises(TypeError, match=repr(callback)):
                    register(callback)

    world.run(scenario)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_callback_after_the_end_is_refused(world: World, ending: str) -> None:
    """F07: nothing attaches to a finished transaction."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            await getattr(tx, ending)()
            for register in (tx.after_commit, tx.after_rollback):
                with pytest.raises(NotInTransaction):
                    register(print)

    world.run(scenario)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_all_callbacks_run_and_the_first_error_is_raised_with_notes_of_the_others(world: World, ending: str) -> None:
    """TC-066 to TC-068: and the state is cleared."""

    async def scenario() -> None:
        outbox, seen = listening(world)
        fired: list[int] = []
        async with outbox:
            with pytest.raises(Deliberate, match="first") as caught:
                async with outbox.transaction() as tx:
                    register = tx.after_commit if ending == "commit" else tx.after_rollback
                    register(lambda: fired.append(1))
                    register(raising(Deliberate("first")))
                    await outbox.write("T", '"hot all the same"')
                    register(raising(ValueError("second")))
                    register(lambda: fired.append(2))
                    await getattr(tx, ending)()
            assert fired == [1, 2]
            assert len(caught.value.__notes__) == 1
            assert "ValueError('second')" in caught.value.__notes__[0]
            assert not tx.is_transaction_active()
            await seen.reach(1 if ending == "commit" else 0)
            async with outbox.transaction():
                await outbox.write("T", '"next"')
            await seen.reach(2 if ending == "commit" else 1)

    world.run(scenario)


def test_a_callbacks_error_does_not_hide_the_error_that_rolled_back(world: World) -> None:
    """Who waits for the business error has to get it; the callback's is a note of it."""

    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(Deliberate, match="the business") as caught:
            async with outbox.transaction() as tx:
                tx.after_rollback(raising(ValueError("a callback")))
                raise Deliberate("the business")
        assert "ValueError('a callback')" in caught.value.__notes__[0]

    world.run(scenario)


@pytest.mark.parametrize("stop", [SystemExit(3), KeyboardInterrupt()])
def test_what_stops_a_program_stops_it_after_the_other_callbacks(stop: BaseException) -> None:
    """Slots of other events would be lost otherwise."""
    fired: list[int] = []
    callbacks = [raising(ValueError("first")), raising(stop), lambda: fired.append(1)]
    with pytest.raises(type(stop)) as caught:
        run_all(callbacks)
    assert caught.value is stop
    with pytest.raises(type(stop)):
        run_all(callbacks, beside=Deliberate())
    assert fired == [1, 1]


def test_a_callback_that_stops_the_program_costs_no_event(tmp_path) -> None:
    world = World("threads", tmp_path)

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=5)
        async with outbox:
            for ending in ("commit", "rollback"):
                with pytest.raises(SystemExit):
                    async with outbox.transaction() as tx:
                        tx.after_commit(raising(SystemExit()))
                        tx.after_rollback(raising(SystemExit()))
                        await outbox.write("T", f'"{ending}"')
                        await getattr(tx, ending)()
            await seen.reach(1)
            await world.until_settled(1)
            assert free_slots(outbox) == 5
        assert payloads(seen) == ['"commit"']

    world.run(scenario)


# ---------------------------------------------------------------- re-entrance


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_write_in_a_callback_has_no_transaction(world: World, ending: str) -> None:
    """F07."""

    async def scenario() -> None:
        outbox = world.outbox()
        plain = outbox if world.is_async else outbox.plain
        errors: list[BaseException] = []

        def callback(tx: Any = None) -> None:
            try:
                plain.write("T", "{}", tx=tx)
            except BaseException as error:
                errors.append(error)

        async with outbox.transaction() as tx:
            register = tx.after_commit if ending == "commit" else tx.after_rollback
            register(callback)
            register(lambda: callback(tx if world.is_async else tx.plain))
            await getattr(tx, ending)()
        assert [type(error) for error in errors] == [NotInTransaction, NotInTransaction]
        assert world.rows() == []

    world.run(scenario)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_callback_may_open_a_transaction_of_its_own(world: World, ending: str) -> None:
    """F07: in asyncio, where callbacks are plain functions, by starting a task."""

    async def scenario() -> None:
        outbox, seen = listening(world)
        started: list[Any] = []

        async def follow_up() -> None:
            async with outbox.transaction() as own:
                await outbox.write("T", '"follow-up"', tx=own)

        def callback() -> None:
            if world.is_async:
                started.append(asyncio.create_task(follow_up()))
            else:
                with outbox.plain.transaction() as own:
                    outbox.plain.write("T", '"follow-up"', tx=own)

        async with outbox:
            async with outbox.transaction() as tx:
                register = tx.after_commit if ending == "commit" else tx.after_rollback
                register(callback)
                await outbox.write("T", '"first"')
                await getattr(tx, ending)()
            if started:
                await started[0]
            expected = ['"first"', '"follow-up"'] if ending == "commit" else ['"follow-up"']
            await seen.reach(len(expected))
        assert payloads(seen) == expected
        assert world.statuses() == [EventStatus.DONE] * len(expected)

    world.run(scenario)


def test_after_commit_sees_the_row_and_after_rollback_does_not(world: World) -> None:
    """TC-069, TC-070: when they fire, the database has decided."""

    async def scenario() -> None:
        outbox = world.outbox()
        counts: list[int] = []
        async with outbox.transaction() as tx:
            tx.after_commit(lambda: counts.append(len(world.rows())))
            await outbox.write("T", "{}")
        async with outbox.transaction() as tx:
            tx.after_rollback(lambda: counts.append(len(world.rows())))
            await outbox.write("T", "{}")
            await tx.rollback()
        assert counts == [1, 1]

    world.run(scenario)


def test_when_callbacks_run_the_database_is_free_again(world: World) -> None:
    """F07: one that writes through another outbox, or is slow, holds no lock."""
    other = Outbox(world.url)

    async def scenario() -> None:
        outbox, seen = listening(world)

        def callback() -> None:
            with other.transaction():
                other.write("T", '"by a callback"')

        async with outbox:
            async with outbox.transaction() as tx:
                tx.after_commit(callback)
                await outbox.write("T", '"behind it"')
            await seen.reach(1)
        assert sorted(row["payload"] for row in world.rows()) == ['"behind it"', '"by a callback"']

    world.run(scenario)
    other.close()
