"""Wake-ups over pub/sub: who hears whom, and that a silent end is noticed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
import redis

from aftercommit import StoreUnavailable
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.redis import aio, threads, wakeups
from tests.stores.kit import run_in
from tests.stores.redis_kit import Keys, OwnServer, pause
from tests.support import Collector, World


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


def test_a_message_is_heard_by_others_of_the_same_outbox_only(redis_keys: Keys, colour: Colour) -> None:
    async def scenario() -> None:
        stores = [
            open_store(url, colour, table=table)
            for url, table in (
                (redis_keys.url, redis_keys.table),
                (redis_keys.url, redis_keys.table),
                (redis_keys.url, redis_keys.named("other")),
                (f"{redis_keys.url}/9", redis_keys.table),
            )
        ]
        listener, sender, stranger, elsewhere = (store.wakeups for store in stores)
        assert await listener.receive() == [], "it has only now begun to listen"
        await stranger.send("of another table")
        await elsewhere.send("of another database")
        await sender.send("first")
        await sender.send("secönd")
        assert await listener.receive() == ["first"]
        assert await listener.receive() == ["secönd"]
        for store in stores:
            await store.close()

    run_in(colour, scenario())


def test_who_waits_can_be_interrupted(redis_keys: Keys, colour: Colour) -> None:
    async def scenario() -> None:
        store = open_store(redis_keys.url, colour, table=redis_keys.table)
        listener = store.wakeups
        await listener.receive()
        listener.interrupt()
        assert await listener.receive() == []
        await store.wakeups.send("after all")
        assert await listener.receive() == ["after all"]
        await store.close()

    run_in(colour, scenario())


def test_a_listener_that_is_cut_off_says_so_and_begins_anew(
    own_redis: Callable[..., OwnServer], colour: Colour
) -> None:
    server = own_redis()

    async def scenario() -> None:
        store = open_store(server.url, colour)
        listener, channel = store.wakeups, store._channel.decode()
        await listener.receive()
        assert _subscribers(server.client, channel) == 1
        assert server.client.client_kill_filter(_type="pubsub") == 1
        with pytest.raises(StoreUnavailable):
            await listener.receive()
        assert await listener.receive() == []
        await store.wakeups.send("again")
        assert await listener.receive() == ["again"]
        await store.close()

    run_in(colour, scenario())


def _subscribers(client: redis.Redis, channel: str) -> int:
    ((_, count),) = client.pubsub_numsub(channel)
    return int(count)


def test_a_server_that_falls_silent_is_noticed(
    own_redis: Callable[..., OwnServer], colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, so nobody tells the socket. Whoever listens asks, and hears no answer."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.05)
    server = own_redis()

    async def scenario() -> None:
        store = open_store(server.url, colour)
        listener = store.wakeups
        await listener.receive()
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with monkeypatch.context() as impatient, pytest.raises(StoreUnavailable, match="said nothing"):
                for link in (aio, threads):
                    impatient.setattr(link, "ANSWER", 0.05)
                await listener.receive()
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        assert await listener.receive() == []
        await store.close()

    run_in(colour, scenario())


def test_a_server_that_answers_is_no_reason_to_begin_anew(
    own_redis: Callable[..., OwnServer], colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "SILENCE", 0.01)
    server = own_redis()

    async def scenario() -> None:
        store = open_store(server.url, colour)
        listener = store.wakeups
        await listener.receive()
        server.client.config_resetstat()

        async def speak() -> None:
            await store.wakeups.send("at last")

        # Heard only after several rounds of silence, each of which asks.
        original, rounds = listener._subscription.ping, []

        async def ping() -> None:
            await original()
            rounds.append(1)
            if len(rounds) == 3:
                await speak()

        listener._subscription.ping = ping
        assert await listener.receive() == ["at last"]
        assert len(rounds) >= 3
        await store.close()

    run_in(colour, scenario())


def test_an_event_of_one_process_wakes_another(world: World, redis_keys: Keys) -> None:
    """Nobody polls meanwhile: the interval is an hour."""

    async def scenario() -> None:
        seen = Collector()
        receiver = world.outbox(redis_keys.url, table=redis_keys.table, poll_interval="1h")
        writer = world.outbox(redis_keys.url, wiring="writer_only", table=redis_keys.table)
        receiver.register("Happened", lambda event: seen.add(event.payload_json))
        async with receiver, writer:
            channel = receiver._store._channel.decode()
            while not _subscribers(redis_keys.client, channel):  # the listener begins beside us
                await (asyncio.sleep(0.001) if world.is_async else pause())
            await writer.write("Happened", 1)
            await seen.reach(1)

    world.run(scenario)
