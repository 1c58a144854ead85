"""`tx.savepoint()`: a nested block that has a name. Its events share its fate, in the table and on the hot path."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import InvalidOption, NotInTransaction, UnsupportedTransaction
from tests.support import World
from tests.transactions.kit import Deliberate, Fates, elsewhere, free_slots, listening, payloads, write_followed

CAPACITY = 100


async def events_of_all_blocks(outbox: Any, outer: Any, fates: Fates) -> list[str]:
    """Blocks that end in every way, one of them inside another; the events that are to be there afterwards."""
    await write_followed(outbox, outer, fates, "before")
    async with outer.savepoint("kept") as kept:
        await write_followed(outbox, kept, fates, "kept")
        with pytest.raises(Deliberate):
            async with kept.savepoint("Order") as risky:  # a word of SQL
                await write_followed(outbox, risky, fates, "raised")
                async with risky.savepoint():
                    await outbox.write("T", '"inside what was raised"')
                raise Deliberate
        async with kept.savepoint("select") as undone:
            await write_followed(outbox, undone, fates, "rolled back")
            await undone.rollback()
            await write_followed(outbox, outer, fates, "behind the rollback")
    async with outer.savepoint("kept") as again:  # which is free again
        await write_followed(outbox, outer, fates, "again", tx=again)
    return ["before", "kept", "behind the rollback", "again"]


def test_an_event_shares_the_fate_of_its_savepoint(any_world: World) -> None:
    """Promise 1: in the table, on the hot path and for callbacks."""

    async def scenario() -> None:
        outbox, seen = listening(any_world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            async with outbox.transaction() as outer:
                kept = await events_of_all_blocks(outbox, outer, fates)
                assert fates.committed == []
                assert sorted(fates.rolled_back) == ["raised", "rolled back"]
            await seen.reach(len(kept))
            await any_world.until_settled(len(kept))
            assert free_slots(outbox) == CAPACITY
        assert payloads(seen) == sorted(f'"{name}"' for name in kept)
        assert [row["payload"] for row in any_world.rows()] == [f'"{name}"' for name in kept]
        assert fates.committed == kept

    any_world.run(scenario)


def test_a_transaction_by_hand_has_savepoints_too(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world)
        async with outbox:
            tx = await outbox.begin()
            with pytest.raises(Deliberate):
                async with tx.savepoint("risky") as risky:
                    await outbox.write("T", '"undone"', tx=risky)
                    await risky.execute("CREATE TABLE business (number INTEGER)")
                    raise Deliberate
            await outbox.write("T", '"kept"')
            await tx.commit()
            await seen.reach(1)
        assert payloads(seen) == ['"kept"']
        assert world.rows("SELECT name FROM sqlite_master WHERE name = 'business'") == []

    world.run(scenario)


def test_a_savepoint_goes_by_its_name_in_the_database(world: World) -> None:
    """A name that it refuses would tell that it never got there."""

    async def scenario() -> None:
        outbox = world.outbox()
        said: list[str] = []
        async with outbox.transaction() as tx:
            tx.connection.set_trace_callback(said.append)
            async with tx.savepoint("risky"), tx.savepoint():
                pass
            tx.connection.set_trace_callback(None)
        assert [each for each in said if "SAVEPOINT" in each] == ['SAVEPOINT "risky"', 'SAVEPOINT "aftercommit_2"']

    world.run(scenario)


@pytest.mark.parametrize("name", ["", "7th", "a b", 'a"b', "a;b", "é", "x" * 33, "aftercommit_1", "AfterCommit_x", 7])
def test_a_name_that_is_none_is_refused_before_anything_is_done(world: World, name: Any) -> None:
    async def scenario() -> None:
        async with world.outbox().transaction() as tx:
            with pytest.raises(InvalidOption, match="the name of a savepoint is"):
                tx.savepoint(name)

    world.run(scenario)


def test_the_name_of_an_open_one_is_refused(world: World) -> None:
    """MySQL would forget the outer one, and an error in the inner one would take too little with it."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            async with tx.savepoint("same"):
                with pytest.raises(InvalidOption, match="a savepoint 'Same' is open around this one"):
                    async with tx.savepoint("Same"):
                        pass
            await outbox.write("T", {})
        assert len(world.rows()) == 1

    world.run(scenario)


def test_a_savepoint_is_refused_where_there_is_no_transaction_of_it(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            late = tx.savepoint()

            async def from_elsewhere() -> None:
                with pytest.raises(NotInTransaction, match="another thread or task"):
                    tx.savepoint()

            await elsewhere(world, from_elsewhere)
        with pytest.raises(NotInTransaction, match="the transaction has ended"):
            tx.savepoint()
        with pytest.raises(NotInTransaction, match="the transaction has ended"):
            async with late:
                pass
        assert late._root is None if world.is_async else late.plain._root is None

    world.run(scenario)


@pytest.mark.parametrize("every_world", ["redis"], indirect=True)
def test_a_store_without_savepoints_refuses_them(every_world: World) -> None:
    async def scenario() -> None:
        async with every_world.outbox().transaction() as tx:
            with pytest.raises(UnsupportedTransaction, match="has no savepoints"):
                tx.savepoint("risky")

    every_world.run(scenario)
