"""What the tests of the inbox share: a consumer that writes bills, in every kind of transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aftercommit import AsyncInbox, Inbox
from tests.support import World
from tests.transactions.driver_kit import calling, done, is_asyncpg

#: Whose transaction the block is part of: nobody's, that of an outbox on the same database, a driver's connection.
WAYS = ("own", "outbox", "driver")

Run = Callable[[str], Awaitable[Any]]


class Billing:
    """An inbox and the table of bills that it guards, in a world."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.outbox = world.outbox(poller_enabled=False)
        self.inbox = self.new_inbox(**options)

    def new_inbox(self, target: Any = None, **options: Any) -> Any:
        kind = AsyncInbox if self.world.is_async else Inbox
        made = kind(self.world.url if target is None else target, **{"create_schema": True, **options})
        made = made if self.world.is_async else AwaitedInbox(made)
        self.world._made.append(made)
        return made

    async def open(self) -> None:
        await self.outbox.create_schema()
        await self.inbox.create_schema()
        self.world.change("CREATE TABLE IF NOT EXISTS bill (name VARCHAR(50))")

    @asynccontextmanager
    async def transaction(self, way: str) -> AsyncIterator[tuple[Any, Run | None]]:
        """What `once` is given as tx, and how the caller runs statements of its own. Committed at the end."""
        if way == "own":
            yield None, None
        elif way == "outbox":
            async with self.outbox.transaction() as tx:
                yield getattr(tx, "plain", tx), tx.execute
        else:
            async with calling(self.world, autocommit=False) as caller:
                if is_asyncpg(self.world):
                    await caller.run("BEGIN")
                yield caller.raw, caller.run
                if is_asyncpg(self.world):
                    await caller.run("COMMIT")
                else:
                    await done(caller.raw.commit())

    async def consume(self, message_id: str, way: str = "own", *, consumer: str = "billing") -> bool:
        """As a consumer does it: one bill for each message."""
        async with self.transaction(way) as (tx, run), self.inbox.once(message_id, consumer=consumer, tx=tx) as first:
            if first:
                await (run or running(first))(f"INSERT INTO bill VALUES ('{message_id}')")
            return bool(first)

    def bills(self) -> list[str]:
        return [row["name"] for row in self.world.rows("SELECT name FROM bill ORDER BY name")]

    def received(self) -> list[tuple[str, str]]:
        sql = "SELECT consumer, message_id FROM inbox WHERE consumer <> '' ORDER BY consumer, message_id"
        return [tuple(row) for row in self.world.rows(sql)]


def running(first: Any) -> Run:
    """In the block's own transaction."""

    async def run(sql: str) -> None:
        await done(first.tx.execute(sql))

    return run


class AwaitedInbox:
    """An Inbox whose methods and blocks are awaited, as those of an AsyncInbox are."""

    def __init__(self, plain: Inbox) -> None:
        self.plain = plain

    def once(self, *arguments: Any, **keywords: Any) -> AwaitedBlock:
        return AwaitedBlock(self.plain.once(*arguments, **keywords))

    def transaction(self, **keywords: Any) -> AwaitedBlock:
        return AwaitedBlock(self.plain.transaction(**keywords))

    def schema_sql(self) -> str:
        return self.plain.schema_sql()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.plain, name)

        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            return method(*arguments, **keywords)

        return awaited


class AwaitedBlock:
    def __init__(self, block: Any) -> None:
        self.block = block

    async def __aenter__(self) -> Any:
        return self.block.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self.block.__exit__(*error)
