"""What goes wrong with Redis is said in the outbox's own words, and leaves nothing half done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aftercommit import StoreForbidden, StoreFull, StoreReadOnly, StoreUnavailable
from aftercommit.events.outcome import DONE, Retry
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.testing.kit import LEASE, event, insert, settle, take
from tests.stores.kit import run_in
from tests.stores.redis_kit import Keys, OwnServer
from tests.support import World

Start = Callable[..., OwnServer]


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


def _fill(server: OwnServer) -> None:
    """Nothing more goes in."""
    server.client.config_set("maxmemory", "1mb")


def _everything(server: OwnServer) -> dict[bytes, object]:
    return {key: server.client.dump(key) for key in server.client.scan_iter(count=1000)}


def test_a_full_server_is_store_full_and_nothing_is_half_written(own_redis: Start, world: World) -> None:
    server = own_redis()

    async def scenario() -> None:
        outbox = world.outbox(server.url)
        await outbox.write("Happened", {})
        _fill(server)
        before = _everything(server)
        with pytest.raises(StoreFull, match="has no room left"):
            await outbox.write("Happened", {})
        with pytest.raises(StoreFull):
            async with outbox.transaction() as tx:
                await tx.set("order:7", "placed")
                await outbox.write("Happened", {})
        assert _everything(server) == before
        server.client.config_set("maxmemory", "0")
        await outbox.write("Happened", {})

    world.run(scenario)


def test_what_waits_in_a_full_server_is_claimed_renewed_and_settled(own_redis: Start, colour: Colour) -> None:
    """Else it would be full for ever."""
    server = own_redis()

    async def scenario() -> None:
        store = open_store(server.url, colour)
        await store.open()
        await insert(store, *[event(key="a") for _ in range(3)])
        _fill(server)
        with pytest.raises(StoreFull):
            await insert(store, event())
        first, second, third = await take(store)
        assert len(await store.renew([first.lease, second.lease], LEASE)) == 2
        assert await store.mark_suspect(first.lease)
        assert await settle(store, first.lease, DONE)
        assert await settle(store, second.lease, Retry(LEASE, "no"))
        assert await settle(store, third.lease, DONE)
        assert server.client.hlen("{outbox_event}:rows") == 1
        await store.close()

    run_in(colour, scenario())


def test_commands_of_a_block_that_shrink_are_atomic_with_events_in_a_full_server(
    own_redis: Start, world: World
) -> None:
    """DEL is allowed there. What the script has begun it ends, so the event is written, too."""
    server = own_redis()

    async def scenario() -> None:
        outbox = world.outbox(server.url)
        await outbox.create_schema()
        server.client.set("order:7", "placed")
        _fill(server)
        async with outbox.transaction() as tx:
            await tx.delete("order:7")
            await outbox.write("Happened", {})
        assert server.client.exists("order:7") == 0
        assert server.client.hlen("{outbox_event}:rows") == 1

    world.run(scenario)


def test_a_server_that_is_away_is_store_unavailable_and_no_secret_is_told(colour: Colour) -> None:
    async def scenario() -> None:
        store = open_store("redis://ann:hunter2@127.0.0.1:1/3", colour)
        assert store.where == "Redis at 127.0.0.1:1/3"
        with pytest.raises(StoreUnavailable) as caught:
            await store.open()
        assert "hunter2" not in str(caught.value) + repr(store)
        assert "Redis at 127.0.0.1:1/3 cannot be reached" in str(caught.value)
        await store.close()

    run_in(colour, scenario())


def test_a_server_that_goes_away_comes_back_without_a_new_outbox(own_redis: Start, world: World) -> None:
    server = own_redis()

    async def scenario() -> None:
        outbox = world.outbox(server.url)
        await outbox.write("Happened", {})
        server.client.execute_command("ACL SETUSER default off")
        server.client.client_kill_filter(skipme=True, _type="normal")
        with pytest.raises(StoreUnavailable):
            await outbox.write("Happened", {})
        server.client.execute_command("ACL SETUSER default on")
        await outbox.write("Happened", {})
        assert server.client.hlen("{outbox_event}:rows") == 2

    world.run(scenario)


def test_a_password_that_is_wrong_or_missing_is_store_unavailable(own_redis: Start, colour: Colour) -> None:
    server = own_redis()
    server.client.config_set("requirepass", "right")

    async def scenario() -> None:
        for login in (":hunter2@", ""):
            store = open_store(f"unix://{login}{server.socket}", colour)
            with pytest.raises(StoreUnavailable) as caught:
                await store.open()
            assert "hunter2" not in str(caught.value)
            await store.close()

    run_in(colour, scenario())


def test_a_user_who_may_not_is_store_forbidden(own_redis: Start, colour: Colour) -> None:
    server = own_redis()
    server.client.execute_command("ACL SETUSER ann on >secret ~other:* &* +@all")

    async def scenario() -> None:
        store = open_store(f"unix://ann:secret@{server.socket}", colour)
        with pytest.raises(StoreForbidden, match="forbids"):
            await store.open()
        await store.close()

    run_in(colour, scenario())


def test_the_rights_that_the_error_names_are_enough(own_redis: Start, world: World) -> None:
    server = own_redis()
    rights = "~{outbox_event}:* &{outbox_event}:* +@all -@dangerous +info"
    server.client.execute_command(f"ACL SETUSER ann on >secret {rights}")

    async def scenario() -> None:
        outbox = world.outbox(f"unix://ann:secret@{server.socket}")
        outbox.register("Happened", lambda _: None)
        async with outbox:
            await outbox.write("Happened", {})
        assert (await outbox.stats()).backlog.new == 0

    world.run(scenario)


def test_a_replica_is_store_read_only(own_redis: Start, colour: Colour) -> None:
    server = own_redis()

    async def scenario() -> None:
        store = open_store(server.url, colour)
        await store.open()
        server.client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreReadOnly, match="takes no writes"):
            await insert(store, event())
        await store.close()

    run_in(colour, scenario())


def test_the_backlog_tells_what_a_row_takes_of_the_memory(redis_keys: Keys, colour: Colour) -> None:
    async def scenario() -> None:
        store = open_store(redis_keys.url, colour, table=redis_keys.table)
        await store.open()
        assert (await store.records.backlog()).bytes_each is None
        await insert(store, *[event(payload_json='"' + "x" * 1000 + '"') for _ in range(200)])
        each = (await store.records.backlog()).bytes_each
        assert each is not None
        assert 1000 < each < 3000
        await store.close()

    run_in(colour, scenario())
