"""How sure it is that Redis keeps what it was given: warnings, and what is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from aftercommit import DeadLetter, InvalidOption, Outbox, StoreUnavailable
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.redis import durability
from aftercommit.testing.kit import event, insert, take
from tests.redis_servers import PrivateValkey, until
from tests.stores.kit import run_in
from tests.stores.redis_kit import OwnServer
from tests.support import World

Start = Callable[..., OwnServer]


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


# ---------------------------------------------------------------- warnings

FILE = ("--appendonly", "yes")
FULL = ("--maxmemory", "100mb")


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ((), ["keeps nothing on disk"]),
        (("--save", "60 1"), ["keeps only snapshots"]),
        (("--appendonly", "yes"), []),
        ((*FILE, *FULL, "--maxmemory-policy", "allkeys-lru"), ["maxmemory-policy allkeys-lru"]),
        # Keys of the outbox never expire, so such a server refuses writes instead.
        ((*FILE, *FULL, "--maxmemory-policy", "volatile-lru"), []),
        ((*FILE, "--maxmemory-policy", "allkeys-lru"), []),
        ((*FULL, "--maxmemory-policy", "allkeys-random"), ["keeps nothing on disk", "maxmemory-policy allkeys-random"]),
    ],
    ids=["nothing", "snapshots", "a file", "evicts all", "evicts what expires", "never full", "both"],
)
def test_health_and_the_log_warn_of_a_server_that_may_lose_events(
    own_redis: Start,
    world: World,
    settings: tuple[str, ...],
    warnings: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = own_redis(*settings)

    async def scenario() -> None:
        outbox = world.outbox(server.url)
        async with outbox:
            health = outbox.health()
        assert health.is_healthy
        assert len(health.warnings) == len(warnings)
        for said, expected in zip(health.warnings, warnings, strict=True):
            assert expected in said
            assert said in caplog.text

    world.run(scenario)


def test_no_key_of_an_outbox_expires(own_redis: Start, world: World) -> None:
    """So a server that drops keys with an expiry (`volatile-…`) drops none of these."""
    server = own_redis()

    def fails(_: object) -> None:
        raise DeadLetter("no")

    async def scenario() -> None:
        outbox = world.outbox(server.url, ordered=True, delete_completed=False)
        outbox.register("Done", lambda _: None)
        outbox.register("Dead", fails)
        async with outbox:
            for kind in ("Done", "Dead"):
                await outbox.write(kind, {}, key=kind)
            await outbox.write("Done", {}, key="later", deliver_after="1h")
            await apart(world, lambda: until(lambda: _has(server, "done") and _has(server, "dead"), "both ends"))
            keys = server.client.keys("*")
            assert b"{outbox_event}:members" in keys
            assert {server.client.ttl(key) for key in keys} == {-1}

    world.run(scenario)


def _has(server: OwnServer, index: str) -> bool:
    return bool(server.client.exists(f"{{outbox_event}}:{index}"))


async def apart(world: World, work: Callable[[], Any]) -> Any:
    """What blocks, while the event loop goes on."""
    return await asyncio.to_thread(work) if world.is_async else work()


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_tell_the_same_of_a_server(own_redis: Start, protocol: int) -> None:
    client = redis.Redis(unix_socket_path=own_redis().socket, protocol=protocol)
    outbox = Outbox(client)
    with outbox:
        (warning,) = outbox.health().warnings
    assert "keeps nothing on disk" in warning
    client.close()


def test_a_server_that_tells_nothing_of_itself_is_used_all_the_same(own_redis: Start, colour: Colour) -> None:
    server = own_redis()
    server.client.execute_command("ACL SETUSER default -info -config")

    async def scenario() -> None:
        store = open_store(server.url, colour)
        await store.open()
        assert tuple(store.warnings) == ()
        await store.close()

    run_in(colour, scenario())


# ---------------------------------------------------------------- the option


@pytest.mark.parametrize("said", ["wait", "wait:0", "wait:-1", "wait:1:1", "waitaof:2", "waitaof:0", "fsync", "wait:x"])
def test_a_durability_that_there_is_not_is_refused_when_the_outbox_is_made(said: str) -> None:
    with pytest.raises(InvalidOption, match="durability is"):
        Outbox(f"redis://127.0.0.1:1?durability={said}")


def test_a_server_without_replicas_cannot_wait_for_one(own_redis: Start, colour: Colour) -> None:
    server = own_redis()

    async def scenario() -> None:
        store = open_store(f"{server.url}?durability=wait:1", colour)
        with pytest.raises(InvalidOption, match=r"waits for 1 replicas, and .* has 0"):
            await store.open()
        await store.close()

    run_in(colour, scenario())


def test_a_server_without_a_file_cannot_wait_for_it(own_redis: Start, colour: Colour) -> None:
    """Before 7.2 it does not know the command at all."""
    server = own_redis()

    async def scenario() -> None:
        store = open_store(f"{server.url}?durability=waitaof:1", colour)
        with pytest.raises(InvalidOption, match="durability='waitaof:1'"):
            await store.open()
        await store.close()

    run_in(colour, scenario())


def test_what_is_written_and_settled_is_on_the_replica_when_the_call_returns(own_redis: Start, colour: Colour) -> None:
    primary, replica = _pair(own_redis)

    async def scenario() -> None:
        store = open_store(f"{primary.url}?durability=wait:1", colour)
        await store.open()
        for number in range(5):
            await insert(store, event())
            assert replica.client.hlen("{outbox_event}:rows") == number + 1
        await store.close()
        assert _calls(primary, "wait") >= 5

    run_in(colour, scenario())


def test_a_settle_is_on_the_replica_when_it_returns(own_redis: Start, world: World) -> None:
    primary, replica = _pair(own_redis)

    async def scenario() -> None:
        outbox = world.outbox(f"{primary.url}?durability=wait:1")
        outbox.register("Happened", lambda _: None)
        await outbox.write("Happened", {})
        assert replica.client.hlen("{outbox_event}:rows") == 1
        assert (await outbox.drain()).delivered == 1
        assert replica.client.hlen("{outbox_event}:rows") == 0

    world.run(scenario)


def test_a_write_that_too_few_confirm_says_so_and_that_it_may_be_there(
    own_redis: Start, colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "PATIENCE", 50)
    primary, replica = _pair(own_redis)

    async def scenario() -> None:
        store = open_store(f"{primary.url}?durability=wait:1", colour)
        await store.open()
        replica.client.replicaof("no", "one")
        with pytest.raises(StoreUnavailable, match=r"durability='wait:1' was not reached: 0 instead of 1") as caught:
            await insert(store, event())
        assert "may be there" in caught.value.fix
        assert len(await take(store)) == 1, "Redis takes nothing back"
        await store.close()

    run_in(colour, scenario())


@pytest.mark.redis_settings(appendonly="yes", appendfsync="everysec")
def test_what_is_written_is_on_disk_when_the_call_returns(private_valkey: PrivateValkey, colour: Colour) -> None:
    """The file is synced once in a second, and the call waits for that."""

    async def scenario() -> None:
        store = open_store(f"{private_valkey.url}?durability=waitaof:1", colour)
        await store.open()
        assert tuple(store.warnings) == ()
        given = event()
        await insert(store, given)
        assert private_valkey.ask("WAITAOF", 1, 0, 1) == [1, 0]
        assert given.event_id.encode() in private_valkey.aof.read_bytes()
        await store.close()
        private_valkey.stop(immediate=True)
        private_valkey.start()
        assert [each.event for each in await take(store)] == [given]
        await store.close()

    run_in(colour, scenario())


@pytest.mark.redis_settings(appendonly="yes")
def test_a_disk_that_is_taken_away_is_noticed_by_the_write(private_valkey: PrivateValkey, colour: Colour) -> None:
    async def scenario() -> None:
        store = open_store(f"{private_valkey.url}?durability=waitaof:1", colour)
        await store.open()
        private_valkey.ask("CONFIG", "SET", "appendonly", "no")
        with pytest.raises(StoreUnavailable, match=r"durability='waitaof:1' was not reached: .*appendonly is disabled"):
            await insert(store, event())
        assert len(await take(store)) == 1
        await store.close()

    run_in(colour, scenario())


@pytest.mark.parametrize(
    ("said", "settings", "why"),
    [
        ("waitaof:1", {"appendonly": "no"}, "has none \\(appendonly no\\)"),
        ("waitaof:1:1", {"appendonly": "yes"}, "waits for 1 replicas, and .* has 0"),
    ],
)
def test_a_server_that_knows_the_command_is_refused_for_what_it_lacks(
    private_valkey: PrivateValkey, colour: Colour, said: str, settings: dict[str, str], why: str
) -> None:
    for setting in settings.items():
        private_valkey.ask("CONFIG", "SET", *setting)

    async def scenario() -> None:
        store = open_store(f"{private_valkey.url}?durability={said}", colour)
        with pytest.raises(InvalidOption, match=why):
            await store.open()
        await store.close()

    run_in(colour, scenario())


def _pair(start: Start) -> tuple[OwnServer, OwnServer]:
    """A primary with a replica that has caught up. Replicas want a port."""
    primary = start("--port", str(port := _free_port()), "--repl-diskless-sync-delay", "0")
    replica = start("--replicaof", f"127.0.0.1 {port}")
    deadline = time.monotonic() + 60
    while primary.client.info("replication").get("slave0", {}).get("state") != "online":
        assert time.monotonic() < deadline, "the replica never came"
        time.sleep(0.01)
    return primary, replica


def _free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _calls(server: OwnServer, command: str) -> int:
    stats = server.client.info("commandstats").get(f"cmdstat_{command}")
    return int(stats["calls"]) if stats else 0
