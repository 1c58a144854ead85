"""Nested blocks are savepoints: what is undone in one reaches neither the table nor a handler, the rest does."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aftercommit import NotInTransaction, Outbox, TransactionEnded, UnsupportedTransaction
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from tests.support import World
from tests.transactions.kit import Deliberate, Fates, free_slots, hot_count, listening, payloads, write_followed

CAPACITY = 100

ENDINGS = ["leave", "commit", "raise", "rollback"]


async def end(tx: Any, ending: str) -> None:
    """End a block from inside, in one of the four ways."""
    if ending == "raise":
        raise Deliberate
    if ending != "leave":
        await getattr(tx, ending)()


@pytest.mark.parametrize(("inner_ends", "outer_ends"), list(product(ENDINGS, ENDINGS)))
def test_an_event_shares_the_fate_of_its_block_and_of_those_around_it(
    world: World, inner_ends: str, outer_ends: str
) -> None:
    """F05, B59, TC-061 to TC-063: rows, hot deliveries and callbacks tell one story."""
    outer_holds = outer_ends in ("leave", "commit")
    inner_holds = outer_holds and inner_ends in ("leave", "commit")

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            try:
                async with outbox.transaction() as outer:
                    await write_followed(outbox, outer, fates, "before")
                    try:
                        async with outbox.transaction() as inner:
                            await write_followed(outbox, inner, fates, "inside")
                            await end(inner, inner_ends)
                    except Deliberate:
                        pass
                    await write_followed(outbox, outer, fates, "after")
                    assert fates.committed == [], "a released savepoint is no commit"
                    assert hot_count(outbox) == 0
                    await end(outer, outer_ends)
            except Deliberate:
                pass

            names = ["before", *(["inside"] if inner_holds else []), "after"] if outer_holds else []
            await seen.reach(len(names))
            await world.until_settled(len(names))
            assert free_slots(outbox) == CAPACITY
        assert payloads(seen) == sorted(f'"{name}"' for name in names)
        assert [row["payload"] for row in world.rows()] == [f'"{name}"' for name in names]
        assert fates.committed == names
        assert sorted(fates.rolled_back) == sorted({"before", "inside", "after"} - set(names))

    world.run(scenario)


def test_a_write_through_the_outer_object_belongs_to_the_open_inner_block(world: World) -> None:
    """The row is in the inner savepoint whichever object was used; so are its slot and its callbacks."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            async with outbox.transaction() as outer:
                with pytest.raises(Deliberate):
                    async with outbox.transaction():
                        await write_followed(outbox, outer, fates, "through the outer", tx=outer)
                        raise Deliberate
                assert fates.rolled_back == ["through the outer"]
                await write_followed(outbox, outer, fates, "kept", tx=outer)
            await seen.reach(1)
            await world.until_settled(1)
            assert free_slots(outbox) == CAPACITY
        assert payloads(seen) == ['"kept"']
        assert [row["payload"] for row in world.rows()] == ['"kept"']
        assert fates.committed == ["kept"]

    world.run(scenario)


@pytest.mark.parametrize("undone", [1, 2, 3])
def test_of_three_levels_the_undone_one_takes_what_is_inside_it(world: World, undone: int) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world)

        async def level(number: int) -> None:
            async with outbox.transaction():
                await outbox.write("T", str(number))
                if number < 3:
                    try:
                        await level(number + 1)
                    except Deliberate:
                        if number + 1 != undone:
                            raise
                if number == undone:
                    raise Deliberate

        async with outbox:
            try:
                await level(1)
            except Deliberate:
                assert undone == 1
            await seen.reach(undone - 1)
        assert [row["payload"] for row in world.rows()] == [str(number) for number in range(1, undone)]
        assert payloads(seen) == [str(number) for number in range(1, undone)]

    world.run(scenario)


def test_after_an_inner_block_the_outer_one_is_ambient_again(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            for ending in ENDINGS:
                try:
                    async with outbox.transaction() as inner:
                        await end(inner, ending)
                        if ending != "leave":  # the inner one is over, the outer one goes on
                            with pytest.raises(NotInTransaction):
                                await outbox.write("T", '"no"', tx=inner)
                            await outbox.write("T", '"outer"')
                except Deliberate:
                    pass
            await outbox.write("T", '"outer"')
        assert [row["payload"] for row in world.rows()] == ['"outer"'] * 3

    world.run(scenario)


def test_an_outer_block_cannot_be_committed_over_an_open_inner_one(world: World) -> None:
    """Its commit is refused, and leaves all as it was; the inner block ends first."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as outer:
            async with outbox.transaction() as inner:
                await outbox.write("T", "1")
                with pytest.raises(TransactionEnded, match="Fix: end the inner block first"):
                    await outer.commit()
                assert inner.is_transaction_active()
                await outbox.write("T", "2")
            await outer.commit()
        assert [row["payload"] for row in world.rows()] == ["1", "2"]

    world.run(scenario)


def test_an_outer_rollback_takes_the_open_inner_block_with_it(world: World) -> None:
    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            async with outbox.transaction() as outer:
                await write_followed(outbox, outer, fates, "outer")
                async with outbox.transaction() as inner:
                    await write_followed(outbox, inner, fates, "inner")
                    await outer.rollback()
                    with pytest.raises(NotInTransaction, match="rolled back"):
                        await inner.execute("SELECT 1")
                    with pytest.raises(NotInTransaction):
                        await outbox.write("T", "0")
            assert fates.rolled_back == ["outer", "inner"]
            assert free_slots(outbox) == CAPACITY
            async with outbox.transaction():
                await outbox.write("T", '"next"')
        assert [row["payload"] for row in world.rows()] == ['"next"']

    world.run(scenario)


@pytest.mark.parametrize("raises", [False, True])
def test_an_inner_transaction_that_was_forgotten_keeps_nobody_waiting(world: World, raises: bool) -> None:
    """A block around it that is left rolls back all and says why; the connection and the ambient place are free."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            with pytest.raises(Deliberate if raises else TransactionEnded):
                async with outbox.transaction() as outer:
                    await write_followed(outbox, outer, fates, "outer")
                    inner = await outbox.begin()  # and no commit
                    await write_followed(outbox, inner, fates, "inner")
                    if raises:
                        raise Deliberate
            assert (fates.committed, fates.rolled_back) == ([], ["outer", "inner"])
            assert free_slots(outbox) == CAPACITY
            async with outbox.transaction():
                await outbox.write("T", '"next"')
            await seen.reach(1)
        assert [row["payload"] for row in world.rows()] == ['"next"']

    world.run(scenario)


# ---------------------------------------------------------------- any tree of blocks


def test_a_store_without_savepoints_refuses_the_inner_block_and_keeps_the_outer_one(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'shop.db'}", Colour.BLOCKING)
    store.capabilities = replace(store.capabilities, has_savepoints=False)
    with closing(Outbox(store)) as outbox:
        with outbox.transaction():
            outbox.write("OrderPlaced", {"order_id": 1})
            inner = outbox.transaction()
            with pytest.raises(UnsupportedTransaction, match=r"has no savepoints\s+Fix: one outbox\.transaction\(\)"):
                inner.__enter__()
            outbox.write("OrderPlaced", {"order_id": 2})
        assert outbox.stats().backlog.new == 2


@dataclass(frozen=True)
class Block:
    """What happens inside, in order, how it ends, and how it is opened."""

    parts: tuple[Any, ...]
    ending: str
    by_hand: bool


WRITE = st.sampled_from(["ambient", "own", "outermost"])
BLOCKS = st.recursive(
    WRITE,
    lambda parts: st.builds(
        Block, st.lists(parts, max_size=4).map(tuple), st.sampled_from(ENDINGS), by_hand=st.booleans()
    ),
    max_leaves=12,
)
TREES = st.builds(Block, st.lists(BLOCKS, max_size=5).map(tuple), st.sampled_from(ENDINGS), by_hand=st.booleans())


class Tree:
    """Runs a tree of blocks on an outbox and knows what has to come of it."""

    def __init__(self, outbox: Any) -> None:
        self.outbox = outbox
        self.fates = Fates()
        self.names: list[str] = []
        self.outermost: Any = None

    async def run(self, block: Block) -> list[str]:
        """The names of the events that the block keeps, should those around it hold."""
        try:
            if block.by_hand:
                async with await self.outbox.begin() as tx:
                    kept = await self.inside(block, tx)
                    await end(tx, "commit" if block.ending == "leave" else block.ending)
            else:
                async with self.outbox.transaction() as tx:
                    kept = await self.inside(block, tx)
                    await end(tx, block.ending)
        except Deliberate:
            pass
        return kept if block.ending in ("leave", "commit") else []

    async def inside(self, block: Block, tx: Any) -> list[str]:
        self.outermost = self.outermost or tx
        kept = []
        for part in block.parts:
            if isinstance(part, Block):
                kept += await self.run(part)
                continue
            name = f"event {len(self.names)}"
            self.names.append(name)
            kept.append(name)
            through = {"ambient": None, "own": tx, "outermost": self.outermost}[part]
            await write_followed(self.outbox, through or tx, self.fates, name, **({"tx": through} if through else {}))
        return kept


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
@pytest.mark.parametrize("name", ["threads", "asyncio"])
def test_whatever_the_tree_of_blocks_rows_deliveries_and_callbacks_agree(
    name: str, tree: Block, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """F05, F06: rows in the table == the model == delivered hot == after_commit fired; after_rollback for the rest."""
    world = World(name, tmp_path_factory.mktemp("tree"))

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            walk = Tree(outbox)
            kept = await walk.run(tree)
            await seen.reach(len(kept))
            await world.until_settled(len(kept))
            assert free_slots(outbox) == CAPACITY
            assert hot_count(outbox) == len(kept)
        assert [row["payload"] for row in world.rows()] == [f'"{each}"' for each in kept]
        assert payloads(seen) == sorted(f'"{each}"' for each in kept)
        assert walk.fates.committed == kept
        assert sorted(walk.fates.rolled_back) == sorted(set(walk.names) - set(kept))

    world.run(scenario)
