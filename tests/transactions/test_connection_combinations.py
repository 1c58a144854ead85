"""The promise of plain connections, over all combinations: what is delivered is what another connection could see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from aftercommit import EventEnvelope, WriterHook
from tests.support import Collector, World
from tests.transactions.driver_kit import Caller, calling, is_asyncpg
from tests.transactions.kit import Deliberate
from tests.transactions.sqlalchemy_kit import Shop, orphan, plain, sync_engine
from tests.transactions.test_sqlalchemy_connections import bare, connected

STEPS = (
    "write",
    "write",
    "write",
    "begin inner",
    "release inner",
    "rollback inner",
    "commit",
    "rollback",
    "orphan",  # a constraint that fails at COMMIT, where it is deferred; elsewhere nothing
    "bad statement",
    "raise hook",
)

#: Of SQLAlchemy: savepoints of its own, besides those by text, and a listener and a COMMIT that raise.
MORE_STEPS = (*STEPS, "begin_nested", "commit nested", "rollback nested", "raise listener", "raise at COMMIT")

#: For each database and driver.
EXAMPLES = 25

Program = list[str]

#: What is written is committed, all of it, or but for what was rolled back.
KNOWN = (
    ("write", "begin inner", "write", "release inner", "write"),
    ("write", "rollback", "write"),
    ("write", "begin inner", "write", "rollback inner", "write"),
)
KEPT = {"0.0", "0.2", "0.4", "1.2", "2.0", "2.4"}
UNDONE = {"1.0", "2.2"}


class Raising(WriterHook):
    """Raises before a write, once when told to; the event is then not written."""

    is_armed = False

    def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
        if self.is_armed:
            self.is_armed = False
            raise Deliberate
        return events


def programs(steps: tuple[str, ...]) -> list[Program]:
    """Some whose end is known, and others by chance."""
    chosen = [list(program) for program in KNOWN]

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from(steps), min_size=1, max_size=14))
    def choose(program: Program) -> None:
        chosen.append(program)

    choose()
    return chosen


async def prove(
    world: World, outbox: Any, steps: tuple[str, ...], play: Callable[[Program, str], Awaitable[None]]
) -> None:
    """Each program in turn: every committed event is delivered, nothing else is, and none before it can be seen."""
    seen, early = Collector(), Collector()

    def look(envelope: EventEnvelope) -> None:
        if not world.rows("SELECT event_id FROM outbox_event WHERE event_id = ?", envelope.event_id):
            early.add(envelope.payload_json)
        seen.add(envelope.payload_json.strip('"'))

    outbox.register("Seen", look)
    await outbox.start()
    for number, program in enumerate(programs(steps)):
        await play(program, str(number))
        expected = [row["payload"].strip('"') for row in world.rows()]
        await seen.reach(len(expected))
        assert sorted(seen) == sorted(expected), program
        assert early == []
    await world.until("SELECT count(*) = 0 FROM outbox_event WHERE status = 0")
    assert sorted(seen) == sorted(row["payload"].strip('"') for row in world.rows())
    assert set(seen) >= KEPT
    assert UNDONE.isdisjoint(seen), "the caller's rollback was one"


# ---------------------------------------------------------------- drivers

ORPHANS = {
    "sqlite": "DEFERRABLE INITIALLY DEFERRED",
    "postgres": "DEFERRABLE INITIALLY DEFERRED",
}


class Play:
    """One program on one connection, steered by SQL text; every error is passed over."""

    def __init__(self, world: World, outbox: Any, hook: Raising, caller: Caller, *, autocommit: bool) -> None:
        self.world, self.outbox, self.hook, self.caller = world, outbox, hook, caller
        self.autocommit = autocommit
        self.is_begun = False
        self.savepoints: list[str] = []

    async def run(self, program: Program, name: str) -> None:
        for number, step in enumerate([*program, "commit"]):
            with suppress(Exception):
                await self.do(step, f"{name}.{number}")

    async def do(self, step: str, name: str) -> None:
        if step not in ("commit", "rollback", "raise hook"):
            await self.begin()
        match step:
            case "write":
                await self.outbox.write("Seen", f'"{name}"', tx=self.caller.raw)
            case "begin inner":
                self.savepoints.append(f"inner_{len(self.savepoints)}")
                await self.caller.run(f"SAVEPOINT {self.savepoints[-1]}")
            case "release inner" if self.savepoints:
                await self.caller.run(f"RELEASE SAVEPOINT {self.savepoints.pop()}")
            case "rollback inner" if self.savepoints:
                await self.caller.run(f"ROLLBACK TO SAVEPOINT {self.savepoints[-1]}")
            case "commit" | "rollback":
                await self.end(step)
            case "orphan" if self.world.database in ORPHANS:
                await self.caller.run("INSERT INTO orphan_order VALUES (999)")
            case "bad statement":
                await self.caller.run("SELECT nothing FROM nowhere")
            case "raise hook":
                self.hook.is_armed = True

    async def begin(self) -> None:
        """Where the driver does not do it."""
        if not self.is_begun and self.autocommit:
            await self.caller.run("BEGIN")
        self.is_begun = True

    async def end(self, how: str) -> None:
        self.savepoints.clear()
        try:
            await self.caller.run(how)
        except Exception:
            await self.caller.run("ROLLBACK")  # SQLite keeps a transaction open whose COMMIT failed
            raise
        finally:
            self.is_begun = False


async def _make_orphans(world: World) -> None:
    if world.database in ORPHANS:
        world.change("CREATE TABLE orphan_customer (id INTEGER PRIMARY KEY)")
        world.change(
            f"CREATE TABLE orphan_order (customer INTEGER REFERENCES orphan_customer (id) {ORPHANS[world.database]})"
        )


def test_what_is_delivered_on_a_driver_connection_is_what_is_committed(any_world: World) -> None:
    async def scenario() -> None:
        hook = Raising()
        outbox = any_world.outbox(poll_interval="60s", writer_hook=hook)
        await outbox.create_schema()
        await _make_orphans(any_world)
        modes = iter(range(10**6))

        async def play(program: Program, name: str) -> None:
            autocommit = is_asyncpg(any_world) or next(modes) % 2 == 0
            async with calling(any_world, autocommit=autocommit) as caller:
                if any_world.database == "sqlite":
                    await caller.run("PRAGMA foreign_keys = ON")
                await Play(any_world, outbox, hook, caller, autocommit=autocommit).run(program, name)
                hook.is_armed = False

        await prove(any_world, outbox, STEPS, play)

    try:
        any_world.run(scenario)
    finally:
        if any_world.database in ORPHANS:
            any_world.change("DROP TABLE orphan_order")
            any_world.change("DROP TABLE orphan_customer")


# ---------------------------------------------------------------- SQLAlchemy


class EnginePlay:
    """One program on one connection of SQLAlchemy; every error is passed over."""

    def __init__(self, outbox: Any, hook: Raising, engine: Any, connection: Any) -> None:
        self.outbox, self.hook, self.engine, self.connection = outbox, hook, engine, connection
        self.savepoints: list[str] = []
        self.nested: list[Any] = []
        self.raising: set[str] = set()
        self._commit = engine.dialect.do_commit

    async def run(self, program: Program, name: str) -> None:
        event.listen(self.engine, "commit", self._listener)
        self.engine.dialect.do_commit = self._commit_or_fail
        try:
            for number, step in enumerate([*program, "commit"]):
                with suppress(Exception):
                    await self.do(step, f"{name}.{number}")
            with suppress(Exception):
                await self.connection.rollback()
        finally:
            self.engine.dialect.do_commit = self._commit
            event.remove(self.engine, "commit", self._listener)
            self.hook.is_armed = False

    def _listener(self, _: Any) -> None:
        if "raise listener" in self.raising:
            self.raising.clear()
            raise Deliberate

    def _commit_or_fail(self, connection: Any) -> None:
        if "raise at COMMIT" in self.raising:
            self.raising.clear()
            connection.rollback()
            raise self.engine.dialect.loaded_dbapi.IntegrityError("at COMMIT")
        self._commit(connection)

    async def do(self, step: str, name: str) -> None:
        text = self.connection.exec_driver_sql
        match step:
            case "write":
                written = plain(self.outbox).write("Seen", f'"{name}"', tx=bare(self.connection))
                if not isinstance(written, str):
                    await written
            case "begin inner":
                self.savepoints.append(f"inner_{len(self.savepoints)}")
                await text(f"SAVEPOINT {self.savepoints[-1]}")
            case "release inner" if self.savepoints:
                await text(f"RELEASE SAVEPOINT {self.savepoints.pop()}")
            case "rollback inner" if self.savepoints:
                await text(f"ROLLBACK TO SAVEPOINT {self.savepoints[-1]}")
            case "begin_nested":
                self.nested.append(await self.connection.begin_nested())
            case "commit nested" if self.nested:
                await self.nested.pop().commit()
            case "rollback nested" if self.nested:
                await self.nested.pop().rollback()
            case "commit":
                await self.commit()
            case "rollback":
                await self.connection.rollback()
            case "orphan":
                await self.connection.execute(orphan())
            case "bad statement":
                await text("SELECT nothing FROM nowhere")
            case "raise hook":
                self.hook.is_armed = True
            case "raise listener" | "raise at COMMIT":
                self.raising.add(step)

    async def commit(self) -> None:
        try:
            await self.connection.commit()
        except Exception:
            await self.connection.rollback()
            raise


def test_what_is_delivered_on_a_connection_of_sqlalchemy_is_what_is_committed(shop: Shop) -> None:
    async def scenario() -> None:
        hook = Raising()
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s", writer_hook=hook)

        async def play(program: Program, name: str) -> None:
            async with connected(shop) as connection:
                await EnginePlay(outbox, hook, sync_engine(shop.engine), connection).run(program, name)

        await prove(shop.world, outbox, MORE_STEPS, play)

    shop.run(scenario)
