"""LISTEN and NOTIFY when something ends, or was never there: the session, the wire, the loop, the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from aftercommit.delivery.agenda import EVERYWHERE, Place
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.wakeups import Announcer, News, WakeupListener
from aftercommit.errors import StoreUnavailable
from aftercommit.events.order import OrderKey
from aftercommit.ports import WakeupsUnavailable
from aftercommit.runtime.threads import run
from aftercommit.stores.postgres import asyncpg_driver, psycopg_listening, wakeups
from tests.delivery.faulty import meter_of, with_runtime
from tests.promises.forks import Child
from tests.servers import Pgbouncer
from tests.stores.postgres_kit import ASYNC_DRIVERS, TARGETS, Table, Way
from tests.stores.postgres_proxy import Proxy
from tests.stores.test_postgres_claims import Beside
from tests.stores.test_postgres_pools import until_gone
from tests.stores.wakeups_kit import behind, heard, listeners, speaker, until_sessions, within
from tests.support import PATIENCE, Collector


@pytest.fixture
def somebody(postgres_table: Table) -> Iterator[Any]:
    with speaker(postgres_table) as say:
        yield say


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Silence is short. The time to answer is what it is told: short where nobody will, long for a busy server."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.05)

    def wait_for_answers(seconds: float) -> None:
        for each in (psycopg_listening, asyncpg_driver):
            monkeypatch.setattr(each, "ANSWER", seconds)

    return wait_for_answers


# ---------------------------------------------------------------- dying


def test_a_session_that_was_ended_is_noticed_at_once_and_renewed(
    way: Way, postgres_table: Table, somebody: Any
) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            await listener.receive()
            (before,) = listeners(postgres_table)
            assert postgres_table.value("SELECT pg_terminate_backend(%s, 5000)", before)
            with pytest.raises((OSError, psycopg.OperationalError)):
                await within(listener.receive())
            assert await listener.receive() == []
            assert before not in listeners(postgres_table)
            somebody("again")
            assert await heard(listener, 1) == ["again"]

    way.run(scenario)


def test_a_session_that_died_in_silence_is_noticed_and_renewed(
    way: Way, postgres_table: Table, somebody: Any, impatient: Callable[[float], None]
) -> None:
    async def scenario(proxy: Proxy) -> None:
        impatient(PATIENCE)
        async with behind(way, proxy) as listener:
            await listener.send("before")
            assert await heard(listener, 1) == ["before"]
            proxy.freeze(new_ones=True)
            impatient(0.3)
            somebody("lost")
            with pytest.raises(StoreUnavailable, match="said nothing"):
                await within(listener.receive())
            assert proxy.unheard, "it was asked"
            proxy.freeze()
            impatient(PATIENCE)
            assert await listener.receive() == []
            somebody("again")
            assert await heard(listener, 1) == ["again"]

    with Proxy(postgres_table.url) as proxy:
        way.run(lambda: scenario(proxy))


def test_a_quiet_session_is_asked_and_kept_and_hears_all(
    way: Way, postgres_table: Table, somebody: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked all the time, so that messages come together with answers."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.0)
    texts = [str(number) for number in range(200)]

    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            await listener.receive()
            asked: list[bool] = []
            ask = listener._connection.is_direct

            async def watched() -> bool:
                asked.append(await ask())
                return asked[-1]

            listener._connection.is_direct = watched
            others = threading.Thread(target=lambda: [somebody(text) for text in texts])
            others.start()
            assert await heard(listener, len(texts)) == texts
            others.join(PATIENCE)
            assert asked
            assert all(asked)

    way.run(scenario)


def test_a_pooler_is_known_and_nothing_is_left_listening_behind_it(
    way: Way, pgbouncer: Pgbouncer, postgres_table: Table, somebody: Any
) -> None:
    async def scenario() -> None:
        async with way.opened() as direct, way.opened(way.at(pgbouncer.url)) as store:
            through, listener = store.wakeups, direct.wakeups
            for _ in range(3):
                with pytest.raises(WakeupsUnavailable, match="pooler"):
                    await through.receive()
            assert not listeners(postgres_table)
            await listener.receive()
            await through.send("it can be said")
            assert await heard(listener, 1) == ["it can be said"]

    way.run(scenario)


# ---------------------------------------------------------------- ending


@pytest.mark.parametrize("which", ["wakeups", "store"])
def test_closing_ends_the_session_and_the_next_receive_begins_anew(
    way: Way, which: str, postgres_table: Table, somebody: Any
) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            await listener.close()
            await listener.receive()
            assert len(listeners(postgres_table)) == 1
            for _ in range(2):
                await (listener if which == "wakeups" else store).close()
            assert listener._connection is None
            assert not store._listening
            assert await listener.receive() == []
            somebody("again")
            assert await heard(listener, 1) == ["again"]

    way.run(scenario)
    until_sessions(postgres_table, way.mark, 0)


def test_closing_from_elsewhere_ends_a_receive_that_waits(way: Way) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            await listener.receive()
            if way.is_async:
                waiting = asyncio.create_task(listener.receive())
                await asyncio.sleep(0)
                await store.close()
                assert await within(waiting) == []
            else:
                beside = Beside(way, listener.receive)
                await store.close()
                assert beside.result() == []

    way.run(scenario)


def test_a_listener_of_a_loop_that_has_ended_begins_anew(postgres_table: Table, somebody: Any) -> None:
    for driver in ASYNC_DRIVERS:
        way = Way(driver, postgres_table)
        store = way.store()
        listener = store.wakeups

        async def begun(listener: Any = listener, store: Any = store) -> None:
            assert await listener.receive() == []
            for executor in (store.executor, store._heartbeats):
                await executor.close()

        async def anew(listener: Any = listener, store: Any = store) -> None:
            assert await within(listener.receive()) == []
            somebody("on another loop")
            assert await heard(listener, 1) == ["on another loop"]
            await store.close()

        way.run(begun)
        listener.interrupt()  # nobody is there to hear it
        listener._is_interrupted = False
        way.run(anew)
        until_gone(way)


# ---------------------------------------------------------------- forking


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", TARGETS)
def test_a_forked_child_listens_on_a_session_of_its_own(postgres_table: Table, somebody: Any, kind: str) -> None:
    way = Way("psycopg", postgres_table)

    async def scenario() -> None:
        async with way.target(kind) as target, way.opened(target) as store:
            listener = store.wakeups
            await listener.receive()

            def child() -> Any:
                store.abandon()
                listener.interrupt()
                listener._is_interrupted = False
                try:
                    run(listener.receive())
                except StoreUnavailable as error:
                    return [str(error)]
                run(listener.send("of the child"))
                messages = run(heard(listener, 1))
                run(store.close())
                return messages

            said = Child(child).said()
            assert "returned" in said, said
            if kind == "pool":
                assert "forked" in said["returned"][0], "a given pool cannot be opened anew"
                somebody("of the child")
            else:
                assert said["returned"] == ["of the child"]
            assert await heard(listener, 1) == ["of the child"]

    way.run(scenario)


# ---------------------------------------------------------------- with the services


class Fleet:
    """Alice speaks, Bob listens; what he was called with."""

    def __init__(self, runtime: Any, alice: Any, bob: Any) -> None:
        self.calls = Collector()
        self.announcer = Announcer(runtime, alice, "alice", meter_of(runtime))
        told: Any = self
        self.listener = WakeupListener(runtime, bob, "bob", meter_of(runtime), told, Ownership(runtime), told)

    def add(self, place: Place) -> bool:
        """As an agenda."""
        self.calls.add("everything" if place is EVERYWHERE else frozenset(place))
        return True

    def call(self) -> None:
        """As a coordinator."""
        self.calls.add("fleet")

    async def __aenter__(self) -> Fleet:
        self.announcer.start()
        self.listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await self.listener.stop(PATIENCE)
        assert await self.announcer.stop(PATIENCE)


def test_a_burst_is_a_handful_of_notifications(way: Way, tmp_path: Any, postgres_table: Table) -> None:
    keys = [OrderKey(number, f"k{number}") for number in range(100)]

    async def scenario(runtime: Any) -> None:
        async with way.opened() as store, Fleet(runtime, store.wakeups, store.wakeups) as fleet:
            await fleet.calls.reach(2)
            counter = store.wakeups
            await counter.receive()
            for key in keys:
                fleet.announcer.tell([key])
            fleet.announcer.tell_fleet()
            messages: list[str] = []
            while not any("fleet" in message for message in messages):
                messages += await within(counter.receive())
            await fleet.calls.reach(4)
            assert len(messages) < 10
            told = [call for call in fleet.calls if isinstance(call, frozenset)]
            assert frozenset().union(*told) == set(keys)

    with_runtime(way.world(tmp_path), scenario)
    until_sessions(postgres_table, way.mark, 0)


def test_a_listener_whose_session_was_ended_looks_at_everything(
    way: Way, tmp_path: Any, postgres_table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any) -> None:
        async with way.opened() as store, Fleet(runtime, store.wakeups, store.wakeups) as fleet:
            await fleet.calls.reach(2)
            (pid,) = listeners(postgres_table)
            assert postgres_table.value("SELECT pg_terminate_backend(%s, 5000)", pid)
            await fleet.calls.reach(4)
            fleet.announcer.tell([OrderKey(7, "k")])
            await fleet.calls.reach(5)
            assert fleet.calls == ["everything", "fleet", "everything", "fleet", {OrderKey(7, "k")}]

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(way.world(tmp_path), scenario)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"], "away, and back"


def test_behind_a_pooler_it_is_said_once_that_polling_is_used(
    way: Way, tmp_path: Any, postgres_table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any, proxy: Proxy) -> None:
        proxy.poses = True
        async with way.opened(way.at(proxy.url)) as store, way.opened() as direct:
            async with Fleet(runtime, store.wakeups, store.wakeups) as fleet:
                assert await fleet.listener._task.join(PATIENCE)  # type: ignore[union-attr]
                listener = direct.wakeups
                await listener.receive()
                fleet.announcer.tell_everything()
                assert [News.read(each) for each in await heard(listener, 1)] == [News("alice", everything=True)]
            assert not fleet.calls

    with caplog.at_level(logging.INFO, "aftercommit"), Proxy(postgres_table.url) as proxy:
        with_runtime(way.world(tmp_path), lambda runtime: scenario(runtime, proxy))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "pooler" in record.message
    assert "polling" in record.message
