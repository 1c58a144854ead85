"""`header_codec`: headers in a format of the user's own; what it raises loses nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from aftercommit import EventStatus, InvalidHeaders, InvalidOption, Outbox
from tests.support import Collector, World

HEADERS = {"trace": "a b&c=d", "é": "😀", "empty": ""}


class Query:
    """As in a URL."""

    def encode(self, headers: Mapping[str, str]) -> str:
        return urlencode(headers)

    def decode(self, text: str) -> Mapping[str, str]:
        if "=" not in text:
            raise ValueError("no headers at all; password=hunter2")
        return dict(parse_qsl(text, keep_blank_values=True))


def test_headers_are_kept_as_the_codec_writes_them(server_world: World) -> None:
    """Promise 12: the same from memory, from the table, and among the dead."""

    async def scenario() -> None:
        seen = Collector()
        outbox = server_world.outbox(header_codec=Query(), context_providers=[lambda: {"tenant": "x/y"}])
        outbox.register("OrderPlaced", lambda event: seen.add(dict(event.headers)))
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {}, headers=HEADERS)
        await outbox.drain()
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {}, headers=HEADERS)
        await seen.reach(2)
        assert seen[0] == seen[1]
        assert HEADERS.items() <= seen[0].items()
        await server_world.until_settled(2)
        for (text,) in server_world.rows("SELECT headers FROM outbox_event"):
            assert dict(parse_qsl(text, keep_blank_values=True)) == seen[0]
        server_world.change("UPDATE outbox_event SET status = 3")
        assert [dead.headers for dead in await outbox.dead.query()] == [seen[0], seen[0]]

    server_world.run(scenario)


def test_events_without_headers_ask_no_codec(world: World) -> None:
    class Never:
        def encode(self, headers: Any) -> str:
            raise AssertionError("asked")

        decode = encode

    async def scenario() -> None:
        outbox = world.outbox(header_codec=Never())
        outbox.register("OrderPlaced", lambda event: None)
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {})
        assert (await outbox.drain()).delivered == 1
        assert [row["headers"] for row in world.rows()] == [None]

    world.run(scenario)


def test_a_row_that_the_codec_cannot_read_is_dead_and_can_be_mended(world: World) -> None:
    """Promise 11: it does not go round, and others go on."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(header_codec=Query())
        outbox.register("OrderPlaced", lambda event: seen.add(event.headers["a"]))
        async with outbox.transaction():
            for number in range(3):
                await outbox.write("OrderPlaced", {}, headers={"a": str(number)})
        world.change("UPDATE outbox_event SET headers = 'nonsense' WHERE headers = 'a=1'")
        await outbox.drain()
        assert sorted(seen) == ["0", "2"]
        (dead,) = await outbox.dead.query()
        assert (dead.headers, dead.attempts) == ({}, 0)
        assert "the header_codec cannot read the stored headers: ValueError: no headers at all" in dead.last_error
        assert "hunter2" not in dead.last_error
        world.change("UPDATE outbox_event SET headers = 'a=mended' WHERE status = ?", EventStatus.DEAD.value)
        assert await outbox.dead.replay(dead.event_id)
        await outbox.drain()
        assert sorted(seen) == ["0", "2", "mended"]

    world.run(scenario)


@pytest.mark.parametrize("given", [{"a": 1}, {None: "x"}, [1, 2], "ab", None], ids=repr)
def test_what_is_no_mapping_of_strings_is_undecodable(world: World, given: Any) -> None:
    class Odd(Query):
        def decode(self, text: str) -> Any:
            return given

    async def scenario() -> None:
        outbox = world.outbox(header_codec=Odd())
        outbox.register("OrderPlaced", lambda event: None)
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {}, headers={"a": "1"})
        await outbox.drain()
        assert await outbox.dead.count() == 1

    world.run(scenario)


def fails(headers: Any) -> str:
    raise ValueError("no such form")


@pytest.mark.parametrize("encode", [fails, lambda headers: b"bytes", lambda headers: "", lambda headers: None])
def test_headers_that_cannot_be_written_refuse_the_write_and_nothing_else(world: World, encode: Any) -> None:
    async def scenario() -> None:
        codec = Query()
        codec.encode = encode  # type: ignore[method-assign]
        outbox = world.outbox(header_codec=codec)
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {})
            with pytest.raises(InvalidHeaders, match="header_codec"):
                await outbox.write("OrderPlaced", {}, headers={"a": "1"})
            await outbox.write("OrderPlaced", {})
        assert len(world.rows()) == 2

    world.run(scenario)


def test_a_session_of_sqlalchemy_writes_with_the_codec_too(world: World) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(f"sqlite:///{world.path}")
    outbox = Outbox(engine, header_codec=Query())
    with orm.Session(engine) as session, session.begin():
        outbox.write("OrderPlaced", {}, headers={"a": "1"}, tx=session)
    outbox.close()
    engine.dispose()
    with sqlite3.connect(world.path) as connection:
        assert connection.execute("SELECT headers FROM outbox_event").fetchall() == [("a=1",)]
    connection.close()


@pytest.mark.parametrize("wrong", ["json", 3, object(), Query])
def test_a_codec_has_both_methods(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="header_codec"):
        Outbox("sqlite://", header_codec=wrong)


def test_redis_refuses_it_by_name() -> None:
    pytest.importorskip("redis")
    with pytest.raises(InvalidOption, match="header_codec was given, and on Redis"):
        Outbox("redis://localhost", header_codec=Query())
