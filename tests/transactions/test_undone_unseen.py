"""What is undone below those who steer a transaction is delivered by nobody; the table is the judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import isawaitable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only

from aftercommit import EventEnvelope
from tests.stores.mysql_kit import locked
from tests.support import Collector, World
from tests.transactions.driver_kit import done
from tests.transactions.kit import free_slots, hot_count, listening
from tests.transactions.sqlalchemy_kit import Customer, Shop, plain, statements

#: SQL text for the library, or for the driver's connection below it.
TEXTS = {
    "savepoint": ("SAVEPOINT mine",),
    "back": ("ROLLBACK TO SAVEPOINT mine",),
    "rollback": ("ROLLBACK",),
    "anew": ("ROLLBACK", "BEGIN"),
    "statement": ("SELECT 1",),
    "hidden savepoint": ("SELECT 1; SAVEPOINT mine",),
    "hidden": ("SELECT 1; ROLLBACK TO SAVEPOINT mine",),  # where a driver takes it
    "bad statement": ("SELECT nothing FROM nowhere",),
}

#: What the driver's connection has methods for.
METHODS = ("rollback()", "begin()", "enter block", "undo block")

STEPS = (
    *("write", "write", "write"),
    *[("library", words) for words in TEXTS],
    *[("driver", words) for words in (*TEXTS, *METHODS)],
)

#: For each database and driver.
EXAMPLES = 20

#: What was seen to deliver events that no table had.
SEEN = (
    [("library", "savepoint"), "write", ("library", "back")],
    ["write", ("library", "rollback")],
    ["write", ("library", "rollback"), ("library", "statement"), "write"],
    [("library", "savepoint"), "write", ("library", "hidden")],
    ["write", ("driver", "rollback()")],
    ["write", ("driver", "rollback()"), ("library", "statement")],
    ["write", ("driver", "rollback()"), ("driver", "begin()")],
    ["write", ("driver", "anew"), "write"],
    ["write", ("driver", "savepoint"), "write", ("driver", "back")],
    ["write", ("driver", "bad statement")],
    ["write", ("driver", "enter block"), "write", ("driver", "undo block"), "write"],
    [("library", "hidden savepoint"), "write", ("library", "hidden")],
)

Program = list[Any]


def programs() -> list[Program]:
    """Those that were seen, and others by chance."""
    chosen: list[Program] = list(SEEN)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=10))
    def choose(program: Program) -> None:
        chosen.append(program)

    choose()
    return chosen


class Driver:
    """A driver's connection, whatever the driver."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.blocks: list[Any] = []

    def does(self, words: str) -> Iterator[Any]:
        """What it gives may have to be awaited, before the next."""
        match words:
            case "rollback()" | "begin()":
                yield getattr(self.raw, words[:-2])()
            case "enter block":
                self.blocks.append(self.raw.transaction())
                yield self._of_block("start", "__enter__", "__aenter__")()
            case "undo block":
                end = self._of_block("rollback", "__exit__", "__aexit__")
                self.blocks.pop()
                yield end() if end.__name__ == "rollback" else end(Undo, Undo(), None)
            case _:
                runs = self.raw if hasattr(self.raw, "execute") else self.raw.cursor()
                for sql in TEXTS[words]:
                    yield runs.execute(sql)

    def _of_block(self, *names: str) -> Any:
        return next(getattr(self.blocks[-1], name) for name in names if hasattr(self.blocks[-1], name))


class Undo(Exception):
    """Ends a driver's block."""


async def prove(world: World, outbox: Any, play: Callable[[Program, str], Awaitable[bool]]) -> None:
    """Each program in turn: what is delivered from memory is in the table, and if the program could commit, all of that
    is delivered. No slot is lost. `play` says whether the commit went well."""
    seen, early = Collector(), list[str]()

    def look(envelope: EventEnvelope) -> None:
        if not world.rows("SELECT event_id FROM outbox_event WHERE event_id = ?", envelope.event_id):
            early.append(envelope.payload_json)
        seen.add(envelope.payload_json.strip('"'))

    outbox.register("Seen", look)
    await outbox.start()
    free, left = free_slots(outbox), set[str]()
    for number, program in enumerate(programs()):
        has_committed = await play(program, str(number))
        await seen.reach(hot_count(outbox))
        await world.until_settled(hot_count(outbox))
        unseen = {row["payload"].strip('"') for row in world.rows()} - set(seen) - left
        if any(words.startswith("hidden") for _, words in (step for step in program if step != "write")):
            has_committed = False  # the error of its second half may answer whoever asks next
        assert not (has_committed and unseen), program
        left |= unseen  # until their lease is over
        assert (early, free_slots(outbox)) == ([], free), program
    assert {"8.0", "10.4"} <= set(seen)


# ---------------------------------------------------------------- sessions


def play_on(session: Session, write: Callable[[str], Any], program: Program, name: str) -> bool:
    """As careless as a user can be: every error is passed over."""
    driver = Driver(session.connection().connection.driver_connection)
    for number, step in enumerate(program):
        with suppress(Exception):
            if step == "write":
                write(f"{name}.{number}")
                session.flush()
                continue
            where, words = step
            if where == "driver":
                for running in driver.does(words):
                    if isawaitable(running):
                        await_only(running)
            else:
                for sql in TEXTS[words]:
                    session.execute(text(sql))
    try:
        session.commit()
        return True
    except Exception:
        with suppress(Exception):
            session.rollback()
        return False


def test_what_a_session_delivers_is_what_was_committed(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()

        def write(name: str, session: Session) -> None:
            plain(outbox).write("Seen", f'"{name}"', tx=session)

        async def play(program: Program, name: str) -> bool:
            return bool(await shop.in_session(lambda it: play_on(it, lambda each: write(each, it), program, name)))

        await prove(shop.world, outbox, play)

    shop.run(scenario)


def test_a_usual_transaction_is_asked_nothing_more(shop: Shop) -> None:
    """Where a driver keeps count of its statements, nobody has to look whether the rows are still there."""

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def work(session: Session) -> None:
            session.add(Customer(id=1))
            plain(outbox).write("T", '"one"', tx=session)
            session.flush()
            with session.begin_nested():
                plain(outbox).write("T", '"two"', tx=session)
            session.commit()

        await shop.in_session(lambda session: session.execute(text("SELECT 1")))
        ran = statements(shop.engine)
        await shop.in_session(work)
        asked = [sql for sql, _ in ran if sql.startswith("SELECT") and "outbox_event" in sql]
        assert len(asked) == (1 if shop.world.database == "sqlite" else 0)
        assert hot_count(outbox) == 2

    shop.run(scenario)


@pytest.mark.parametrize("kind", ["session", "own"])
def test_a_procedure_that_rolls_back_is_seen(shop: Shop, kind: str) -> None:
    if shop.world.database != "mariadb":
        pytest.skip("where a procedure in a transaction cannot end it")

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        shop.world.change("DROP PROCEDURE IF EXISTS starts_anew")
        shop.world.change("CREATE PROCEDURE starts_anew() BEGIN ROLLBACK; START TRANSACTION; END")

        def work(session: Session) -> None:
            plain(outbox).write("T", '"undone"', tx=session)
            session.flush()
            session.execute(text("CALL starts_anew()"))
            plain(outbox).write("T", '"kept"', tx=session)
            session.commit()

        if kind == "session":
            await shop.in_session(work)
        else:
            async with outbox.transaction() as tx:
                await outbox.write("T", '"undone"')
                await tx.execute("CALL starts_anew()")
                await outbox.write("T", '"kept"')
        await shop.seen.reach(1)
        await shop.world.until_settled(1)
        assert (list(shop.seen), hot_count(outbox), shop.committed()) == (["kept"], 1, ["kept"])

    shop.run(scenario)


@pytest.mark.parametrize("through", ["session", "driver"])
def test_the_loser_of_a_deadlock_delivers_nothing(shop: Shop, through: str) -> None:
    """MariaDB has rolled all of it back; the program passes over the error and commits what comes behind it."""
    if shop.world.database != "mariadb":
        pytest.skip("where a deadlock fails the transaction")

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        await shop.on_connection(lambda it: it.execute(text("INSERT INTO shop_order (id) VALUES (1), (2), (3)")))
        update = "UPDATE shop_order SET customer_id = 1 WHERE id = %d"

        def work(session: Session) -> None:
            plain(outbox).write("T", '"undone"', tx=session)
            session.flush()
            driver = Driver(session.connection().connection.driver_connection)

            def say(sql: str) -> None:
                if through == "session":
                    session.execute(text(sql))
                elif isawaitable(running := driver.raw.cursor().execute(sql)):
                    await_only(running)

            say(update % 1)
            with locked(shop.world.url, update % 2) as other, ThreadPoolExecutor(1) as thread:
                other.execute("INSERT INTO shop_customer VALUES (1), (2), (3), (4)")  # who has changed more is spared
                waits = thread.submit(other.execute, update % 1)
                with pytest.raises(Exception, match="Deadlock"):
                    say(update % 2)
                waits.result(20)
            plain(outbox).write("T", '"kept"', tx=session)
            session.commit()

        await shop.in_session(work)
        await shop.seen.reach(1)
        await shop.world.until_settled(1)
        assert (list(shop.seen), hot_count(outbox), shop.committed()) == (["kept"], 1, ["kept"])

    shop.run(scenario)


# ---------------------------------------------------------------- transactions of the outbox's own


def test_what_an_own_transaction_delivers_is_what_was_committed(any_world: World) -> None:
    async def scenario() -> None:
        outbox, _ = listening(any_world)

        async def play(program: Program, name: str) -> bool:
            try:
                async with outbox.transaction() as tx:
                    driver: Driver | None = None
                    for number, step in enumerate(program):
                        with suppress(Exception):
                            if step == "write":
                                await outbox.write("Seen", f'"{name}.{number}"')
                                continue
                            where, words = step
                            if where == "driver":
                                driver = driver or Driver(tx.connection)
                                for running in driver.does(words):
                                    await done(running)
                            else:
                                for sql in TEXTS[words]:
                                    await tx.execute(sql)
            except Exception:
                return False
            return True

        await prove(any_world, outbox, play)

    any_world.run(scenario)
