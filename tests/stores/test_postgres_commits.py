"""Commits that fail, hang in the air or come late: what is delivered is what was committed, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit import TransactionEnded
from tests.stores.postgres_kit import TARGETS, Table, Way
from tests.stores.postgres_proxy import Proxy
from tests.support import Collector, World
from tests.transactions.kit import cold_count, free_slots, hot_count

#: A lease that nobody settles is soon another's.
BRIEF = {"lock_timeout": "1s", "poll_interval": "50ms"}

#: The poller looks when it is asked to.
ON_CALL = {"poll_interval": "1h"}


@pytest.fixture
def world(way: Way, tmp_path: Path) -> Iterator[World]:
    made = way.world(tmp_path)
    yield made
    made.somebody.close()


def listening(world: World, target: Any, **options: Any) -> tuple[Any, Collector]:
    seen = Collector()
    outbox = world.outbox(target, **options)
    outbox.register("T", seen.add)
    return outbox, seen


def payloads(events: list[Any]) -> Counter[str]:
    return Counter(event.payload_json for event in events)


# ---------------------------------------------------------------- in the air


@pytest.mark.parametrize("kind", TARGETS)
def test_a_commit_whose_answer_is_lost_is_delivered_if_it_was_one(
    way: Way, world: World, kind: str, postgres_table: Table
) -> None:
    """The connection is cut before the server hears the COMMIT, or after it has answered. The caller hears an error
    either way; nothing is delivered from memory, and the connections that follow are sound."""

    async def scenario() -> None:
        with Proxy(postgres_table.url) as proxy:
            through = Way(way.driver, Table(proxy.url))
            async with through.target(kind) as target:
                outbox, seen = listening(world, target, **ON_CALL)
                async with outbox:
                    for number, cut in enumerate([None, "before", None, "after", "after", None, "before", None]):
                        await one(outbox, proxy, number, cut)
                    committed = {event(number) for number in (0, 2, 3, 4, 5, 7)}
                    assert {row["payload"] for row in world.rows()} == committed
                    await world.until_settled(4)
                    assert world.change("UPDATE outbox_event SET lease_until = 0 WHERE status = 0") == 2
                    await outbox.poll()  # or a look of its own takes them: when it has begun to listen, for one
                    await world.until_settled(len(committed))
                    assert hot_count(outbox) == 4, "those whose commit was heard"
                    assert cold_count(outbox) == 2, "those whose commit was found"
                    assert payloads(seen) == Counter(committed)
                    assert proxy.cuts == 4
                    assert free_slots(outbox) == 1000
            through.table.close()

    async def one(outbox: Any, proxy: Proxy, number: int, cut: str | None) -> None:
        if cut is None:
            async with outbox.transaction():
                await outbox.write("T", event(number))
            return
        proxy.cut_commit(cut, of=event(number).encode())
        with pytest.raises(Exception, match=r"(?i)closed|lost|terminated|reset|consuming"):
            async with outbox.transaction():
                await outbox.write("T", event(number))

    def event(number: int) -> str:
        """A payload that nobody else says: the outbox commits its own work on the same wire."""
        return f'"event {number}"'

    world.run(scenario)


def test_a_session_that_is_ended_within_a_transaction_takes_it_along(
    way: Way, world: World, postgres_table: Table
) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, way.url)
        async with outbox:
            with pytest.raises(Exception, match=r"(?i)closed|terminat|lost|transaction was ended"):
                async with outbox.transaction():
                    await outbox.write("T", "1")
                    assert postgres_table.end_sessions(way.mark)
            async with outbox.transaction():
                await outbox.write("T", "2")
            await world.until_settled(1)
        assert payloads(seen) == Counter({"2": 1})
        assert [row["payload"] for row in world.rows()] == ["2"]

    world.run(scenario)


# ---------------------------------------------------------------- rolled back instead


@pytest.mark.parametrize("is_exposed", [False, True], ids=["plain", "connection seen"])
def test_a_failed_statement_that_was_swallowed_makes_the_commit_raise(way: Way, world: World, is_exposed: bool) -> None:
    """PostgreSQL answers COMMIT with ROLLBACK then, and no error."""

    async def scenario() -> None:
        outbox, seen = listening(world, way.url, poller_enabled=False)
        async with outbox:
            with pytest.raises(TransactionEnded, match="rolled the transaction back") as caught:
                async with outbox.transaction() as tx:
                    await outbox.write("T", "1")
                    if is_exposed:
                        assert tx.connection is not None
                    with pytest.raises(Exception, match="no_such_table"):
                        await tx.execute("SELECT * FROM no_such_table")
            assert "nested outbox.transaction()" in caught.value.fix
            assert world.rows() == []
            async with outbox.transaction():
                await outbox.write("T", "2")
            await world.until_settled(1)
            assert (hot_count(outbox), free_slots(outbox)) == (1, 1000)
        assert payloads(seen) == Counter({"2": 1})

    world.run(scenario)


def test_a_failed_statement_in_a_nested_block_costs_that_block_only(way: Way, world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, way.url, poller_enabled=False)
        async with outbox:
            async with outbox.transaction() as tx:
                await outbox.write("T", "1")
                with pytest.raises(Exception, match="no_such_table"):
                    async with outbox.transaction():
                        await outbox.write("T", "2")
                        await tx.execute("SELECT * FROM no_such_table")
                await outbox.write("T", "3")
            await world.until_settled(2)
        assert payloads(seen) == Counter({"1": 1, "3": 1})

    world.run(scenario)


def test_a_constraint_that_waits_for_the_commit_is_the_callers_error(
    way: Way, world: World, postgres_table: Table
) -> None:
    postgres_table.execute("CREATE TABLE business (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    async def scenario() -> None:
        outbox, seen = listening(world, way.url, poller_enabled=False)
        async with outbox:
            with pytest.raises(Exception, match="business_n_key"):
                async with outbox.transaction() as tx:
                    await outbox.write("T", "1")
                    await tx.execute("INSERT INTO business VALUES (1), (1)")
            assert world.rows() == []
            async with outbox.transaction():
                await outbox.write("T", "2")
            await world.until_settled(1)
        assert payloads(seen) == Counter({"2": 1})

    world.run(scenario)


# ---------------------------------------------------------------- late


def test_a_transaction_that_outlives_its_lease_is_delivered_once(way: Way, world: World, postgres_table: Table) -> None:
    """Its row is born leased, and the lease has run out before anybody can see the row."""

    async def scenario() -> None:
        outbox, seen = listening(world, way.url, **BRIEF)
        async with outbox:
            async with outbox.transaction():
                await outbox.write("T", "1")
                await world.until("SELECT clock_timestamp() > ?", world.somebody.at(world.now() + 1_100_000))
            await world.until_settled(1)
            async with outbox.transaction():
                await outbox.write("T", "2")
            await world.until_settled(2)
        assert payloads(seen) == Counter({"1": 1, "2": 1})
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


def test_a_shorter_lock_timeout_takes_nobodys_live_lease(way: Way, world: World, postgres_table: Table) -> None:
    """A fleet in the middle of a change of that option."""

    async def scenario() -> None:
        patient, seen = listening(world, way.url, lock_timeout="1h", poller_enabled=False, hot_path=False)
        hasty, taken = listening(world, way.url, **BRIEF)
        async with patient.transaction():
            for number in range(3):
                await patient.write("T", str(number))
        postgres_table.execute(
            "UPDATE outbox_event SET locked_by = 'patient', lease_epoch = 1, lease_until = now() + interval '1 hour' "
            "WHERE payload <> '2'"
        )
        async with hasty:
            await taken.reach(1)
            await world.until("SELECT clock_timestamp() > ?", world.somebody.at(world.now() + 1_100_000))
            assert await hasty.poll() == 0
        assert payloads(taken) == Counter({"2": 1})
        assert seen == []
        assert [row["locked_by"] for row in world.rows()] == ["patient", "patient", None]

    world.run(scenario)
