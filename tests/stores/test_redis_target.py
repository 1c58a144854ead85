"""Which targets lead to a Redis store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis import asyncio as aioredis

from aftercommit import AsyncOutbox, ColourMismatch, InvalidOption, Outbox, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.redis.store import RedisStore
from aftercommit.testing.kit import event, insert, take
from tests.stores.kit import run_in
from tests.stores.redis_kit import Keys, OwnServer


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://", "Redis at localhost:6379/0"),
        ("redis://db", "Redis at db:6379/0"),
        ("REDIS://db:6380/4", "Redis at db:6380/4"),
        ("rediss://ann:secret@db:6380/4?ssl_cert_reqs=none", "Redis at db:6380/4"),
        ("unix:///run/redis.sock?db=3", "Redis at /run/redis.sock, database 3"),
        ("unix://ann:secret@/run/redis.sock", "Redis at /run/redis.sock, database 0"),
        ("redis://db/1?durability=wait:2&socket_timeout=3", "Redis at db:6379/1"),
    ],
)
def test_a_url_leads_to_a_store_that_keeps_its_login_to_itself(url: str, where: str, colour: Colour) -> None:
    store = open_store(url, colour)
    assert isinstance(store, RedisStore)
    assert (store.where, store.colour) == (where, colour)
    assert "secret" not in repr(store)


@pytest.mark.parametrize("url", ["redis://db:port", "redis://ann:se/cret@db:6379:1", "redis://db?socket_timeout=soon"])
def test_a_url_that_cannot_be_read_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UnknownStore, match="cannot be read") as caught:
        Outbox(url)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("decodes", [False, True], ids=["bytes", "decoded"])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("kind", ["client", "pool"])
def test_a_client_or_pool_of_the_users_is_used_and_stays_the_users(
    redis_keys: Keys, colour: Colour, kind: str, protocol: int, decodes: bool
) -> None:
    """Whatever it makes of replies for its owner."""

    async def scenario() -> None:
        module: Any = redis if colour is Colour.BLOCKING else aioredis
        client = module.Redis.from_url(redis_keys.url, decode_responses=decodes, protocol=protocol)
        target = client if kind == "client" else client.connection_pool
        store = open_store(target, colour, table=redis_keys.table)
        assert store.where.startswith("Redis at 127.0.0.1:")
        await store.open()
        given = event(payload_bytes=bytes(range(256)), key="ключ")
        await insert(store, given)
        (claimed,) = await take(store)
        assert claimed.event == given
        listener = store.wakeups
        await listener.receive()
        await store.wakeups.send("wäke")
        assert await listener.receive() == ["wäke"]
        await store.close()
        answer = client.ping()
        assert (answer if colour is Colour.BLOCKING else await answer) is True
        if colour is Colour.BLOCKING:
            client.close()
        else:
            await client.aclose()

    run_in(colour, scenario())


def test_a_client_of_the_other_colour_is_refused() -> None:
    with pytest.raises(ColourMismatch, match=r"redis\.asyncio.*, which is async, and Outbox blocks"):
        Outbox(aioredis.Redis())
    with pytest.raises(ColourMismatch, match="which blocks, and AsyncOutbox is async"):
        AsyncOutbox(redis.Redis())


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(UnknownStore, match=r"redis\.client\.PubSub"):
        Outbox(redis.Redis().pubsub())


def test_a_durability_may_be_given_to_the_store_of_a_client_of_ones_own(redis_keys: Keys) -> None:
    client = redis.Redis.from_url(redis_keys.url)
    store = open_store(client, Colour.BLOCKING, table=redis_keys.table, durability="wait:1")
    assert store.server.durability.said == "wait:1"
    assert Outbox(store)._store is store
    client.close()
    with pytest.raises(InvalidOption, match="in the URL and by name"):
        open_store("redis://db?durability=wait:1", Colour.BLOCKING, durability="wait:1")


@pytest.mark.parametrize("table", ["", "a b", "a}b", "{a", "1a", "é", "x" * 49, "outbox"])
def test_a_name_that_could_leave_its_hash_tag_is_refused(table: str) -> None:
    with pytest.raises(InvalidOption, match="table is"):
        Outbox("redis://db", table=table)


def test_a_schema_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Redis has no schemas"):
        Outbox("redis://db", schema="sales")


def test_two_databases_of_one_server_do_not_see_each_other(own_redis: Callable[..., OwnServer], colour: Colour) -> None:
    server = own_redis()

    async def scenario() -> None:
        first, second = (open_store(f"{server.url}?db={number}", colour) for number in (0, 1))
        for store in (first, second):
            await store.open()
        await insert(first, event())
        assert await take(second) == []
        assert len(await take(first)) == 1
        for store in (first, second):
            await store.close()

    run_in(colour, scenario())


def test_one_async_store_serves_one_loop_after_another_and_leaves_no_sessions(
    own_redis: Callable[..., OwnServer],
) -> None:
    server = own_redis()
    store = open_store(server.url, Colour.ASYNC)

    async def scenario() -> None:
        await store.open()
        await insert(store, event())

    for number in range(3):
        run_in(Colour.ASYNC, scenario())
        assert server.client.hlen("{outbox_event}:rows") == number + 1
    run_in(Colour.ASYNC, store.close())
    server.until_alone()
