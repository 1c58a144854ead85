"""Scripts on Redis: what they declare, what a server does that does not know them, and layouts that do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from aftercommit import SchemaMismatch, SchemaMissing
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.redis.scripts import KeyNames, scripts_of
from aftercommit.testing.kit import event, insert, take
from tests.stores.kit import run_in
from tests.stores.redis_kit import Keys, OwnServer
from tests.support import Collector, World

SCRIPTS = sorted(
    each.name.removesuffix(".lua")
    for each in files("aftercommit.stores.redis").joinpath("lua").iterdir()
    if each.name.endswith(".lua") and each.name != "prelude.lua"
)

#: Every key that an outbox may have.
NOUNS = {
    *(
        "meta",
        "events",
        "ids",
        "rows",
        "free",
        "leased",
        "order",
        "retry",
        "dead",
        "dead_keys",
        "dead_at",
        "done",
        "failures",
    ),
    *("members", "partitions", "pauses"),
}


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_begins_with_its_promise_and_declares_its_keys(name: str) -> None:
    text = files("aftercommit.stores.redis").joinpath("lua", f"{name}.lua").read_text()
    assert re.match(r"-- [A-Z].*", text)
    script = scripts_of(KeyNames("shop"))[name]
    declared = {key.decode().removeprefix("{shop}:") for key in script.keys}
    assert declared <= NOUNS
    assert script.keys[0] == b"{shop}:meta", "the layout is looked at first"


def test_all_keys_of_an_outbox_have_one_hash_tag(redis_keys: Keys) -> None:
    async def scenario() -> None:
        store = open_store(redis_keys.url, Colour.BLOCKING, table=redis_keys.table)
        await store.open()
        await insert(store, event(key="a"), event())
        await take(store, limit=1)
        await store.close()

    run_in(Colour.BLOCKING, scenario())
    found = {key.decode() for key in redis_keys.client.scan_iter(match=f"*{redis_keys.word}*", count=1000)}
    assert found
    assert {key.partition(":")[0] for key in found} == {f"{{{redis_keys.table}}}"}


def test_scripts_that_were_flushed_are_sent_again(own_redis: Callable[..., OwnServer], world: World) -> None:
    """In the middle of the work, more than once."""
    server = own_redis()

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(server.url)
        outbox.register("Happened", lambda event: seen.add(event.payload_json))
        async with outbox:
            for number in range(3):
                server.client.script_flush()
                assert not server.client.script_exists(outbox._store.server.scripts["append"].sha)[0]
                await outbox.write("Happened", number)
                await seen.reach(number + 1)
        assert sorted(seen) == ["0", "1", "2"]

    world.run(scenario)


def test_a_server_that_lost_the_outbox_gets_it_anew(own_redis: Callable[..., OwnServer], world: World) -> None:
    """A server without a disk that was restarted: what comes from now on is delivered."""
    server = own_redis()

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(server.url)
        outbox.register("Happened", lambda event: seen.add(event.payload_json))
        async with outbox:
            await outbox.write("Happened", 1)
            await seen.reach(1)
            server.client.flushall()
            await outbox.write("Happened", 2)
            await seen.reach(2)

    world.run(scenario)


def test_a_newer_layout_is_refused_at_the_start(redis_keys: Keys, colour: Colour) -> None:
    redis_keys.client.hset(redis_keys.key("meta"), mapping={"layout": "2"})

    async def scenario() -> None:
        store = open_store(redis_keys.url, colour, table=redis_keys.table)
        with pytest.raises(SchemaMismatch, match="have the layout 2, this release has 1"):
            await store.open()
        await store.close()

    run_in(colour, scenario())


def test_a_layout_that_changes_beside_a_process_stops_every_script_of_it(redis_keys: Keys, colour: Colour) -> None:
    """Never mixed: nothing is written, claimed or settled in a layout that this process does not know."""

    async def scenario() -> None:
        store = open_store(redis_keys.url, colour, table=redis_keys.table)
        await store.open()
        await insert(store, event())
        before = redis_keys.rows()
        redis_keys.client.hset(redis_keys.key("meta"), "layout", "2")
        works: list[Callable[[], Any]] = [
            lambda: insert(store, event()),
            lambda: take(store),
            store.records.backlog,
            store.membership.view,
        ]
        for work in works:
            with pytest.raises(SchemaMismatch, match="have the layout 2"):
                await work()
        assert redis_keys.rows() == before
        await store.close()

    run_in(colour, scenario())


def test_an_outbox_that_is_not_there_is_made_only_when_that_is_allowed(redis_keys: Keys, colour: Colour) -> None:
    async def scenario() -> None:
        store = open_store(redis_keys.url, colour, table=redis_keys.table, create_schema=False)
        with pytest.raises(SchemaMissing, match="there is no outbox"):
            await store.open()
        await store.create_schema()
        await store.open()
        await store.close()

    run_in(colour, scenario())


def test_processes_that_disagree_about_order_are_refused_until_one_decides(redis_keys: Keys, colour: Colour) -> None:
    async def scenario() -> None:
        plain = open_store(redis_keys.url, colour, table=redis_keys.table)
        await plain.open()
        other = open_store(redis_keys.url, colour, table=redis_keys.table, ordered=True)
        with pytest.raises(SchemaMismatch, match="was made with ordered=False"):
            await other.open()
        await other.create_schema()
        await other.open()
        again = open_store(redis_keys.url, colour, table=redis_keys.table)
        with pytest.raises(SchemaMismatch, match="was made with ordered=True"):
            await again.open()
        for store in (plain, other, again):
            await store.close()

    run_in(colour, scenario())


@pytest.mark.parametrize("backlog", [0, 3000])
def test_a_claim_does_as_much_with_a_long_backlog_as_without(own_redis: Callable[..., OwnServer], backlog: int) -> None:
    """Rows that wait, are leased, or are dead do not make it longer: counted in commands of the script."""
    server = own_redis()

    async def scenario() -> None:
        store = open_store(server.url, Colour.BLOCKING)
        await store.open()
        if backlog:
            await insert(store, *[event() for _ in range(backlog)])
            assert len(await take(store, limit=backlog)) == backlog
            await insert(store, *[event(deliver_after="1h") for _ in range(backlog)])
        await insert(store, *[event() for _ in range(10)])
        server.client.config_resetstat()
        assert len(await take(store, limit=10)) == 10
        stats = server.client.info("commandstats")
        calls = sum(each["calls"] for name, each in stats.items() if name not in ("cmdstat_config|resetstat",))
        assert calls < 10 * 6 + 20
        await store.close()

    run_in(Colour.BLOCKING, scenario())
