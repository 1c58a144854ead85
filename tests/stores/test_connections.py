"""The pool of connections, in either colour: so many and no more, whoever waits is served in turn, nobody is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aftercommit.errors import StoreBusy
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.sql import connections
from aftercommit.stores.sql.aio import TaskTurn
from aftercommit.stores.sql.connections import LARGEST, Pool, ThreadTurn
from tests.stores.bench import SOON, Bench, our_threads
from tests.stores.kit import run_in
from tests.support import PATIENCE

TURNS = {Colour.BLOCKING: ThreadTurn, Colour.ASYNC: TaskTurn}


class Made:
    """A connection that is counted."""

    def __init__(self, made: list[Made]) -> None:
        self.is_open = True
        made.append(self)

    async def close(self) -> None:
        self.is_open = False

    def drop(self) -> None:
        self.is_open = False


class Users:
    """A pool of two and those who come to it, as threads or as tasks."""

    def __init__(self, colour: Colour, **options: Any) -> None:
        self.colour = colour
        self.made: list[Made] = []
        self.pool: Pool[Made] = Pool(lambda: Made(self.made), TURNS[colour], largest=2, **options)

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
        """Run it beside the caller; call the result to await its end."""
        if self.colour is Colour.ASYNC:
            task = asyncio.ensure_future(work())
            return lambda: task
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(run(work())))
        thread.start()

        async def ended() -> Any:
            thread.join(PATIENCE)
            return found[0]

        return ended

    async def until_in_line(self, count: int) -> None:
        for _ in range(4000):
            if len(self.pool._line) == count:
                return
            if self.colour is Colour.ASYNC:
                await asyncio.sleep(0)
            else:
                threading.Event().wait(0.001)
        raise AssertionError("nobody stands in line")


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def users(request: pytest.FixtureRequest) -> Users:
    return Users(request.param)


def test_whoever_waits_is_served_in_turn(users: Users) -> None:
    pool = users.pool

    async def scenario() -> None:
        held = [await pool.take(), await pool.take()]
        served: list[int] = []

        def waits(number: int) -> Callable[[], Coroutine[Any, Any, None]]:
            async def work() -> None:
                one = await pool.take()
                served.append(number)
                await pool.give(one)

            return work

        waiting = []
        for number in range(5):
            waiting.append(users.start(waits(number)))
            await users.until_in_line(number + 1)
        await pool.give(held[0])
        for each in waiting:
            await each()
        assert served == [0, 1, 2, 3, 4]
        assert len(users.made) == 2
        await pool.give(held[1])
        await pool.close()

    run_in(users.colour, scenario())
    assert not any(each.is_open for each in users.made)


def test_one_that_comes_back_unsound_makes_room_for_another(users: Users) -> None:
    pool = users.pool

    async def scenario() -> None:
        held = [await pool.take(), await pool.take()]
        waiting = users.start(pool.take)
        await users.until_in_line(1)
        await pool.give(held[0], is_sound=False)
        third = await waiting()
        assert third not in held
        assert [each.is_open for each in users.made] == [False, True, True]

    run_in(users.colour, scenario())


def test_whoever_waits_too_long_is_told_and_leaves_the_line(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", SOON)
    pool = users.pool

    async def scenario() -> None:
        held = [await pool.take(), await pool.take()]
        with pytest.raises(StoreBusy, match="all 2 connections") as caught:
            await pool.take()
        assert caught.value.fix == "keep transactions short"
        assert not pool._line
        await pool.give(held[0])
        assert await pool.take() is held[0]

    run_in(users.colour, scenario())


def test_close_serves_those_who_wait_by_new_ones(users: Users) -> None:
    """What is out is closed when it comes back, and does not count any more."""
    pool = users.pool

    async def scenario() -> None:
        held = [await pool.take(), await pool.take()]
        waiting = users.start(pool.take)
        await users.until_in_line(1)
        await pool.close()
        late = await waiting()
        assert late not in held
        for each in held:
            await pool.give(each)
        assert [each.is_open for each in users.made] == [False, False, True]
        await pool.give(late)
        assert pool._idle == [late]

    run_in(users.colour, scenario())


@pytest.mark.parametrize("is_called", [False, True], ids=["in line", "called"])
def test_a_task_that_is_cancelled_in_line_keeps_nothing(is_called: bool) -> None:
    users = Users(Colour.ASYNC)
    pool = users.pool

    async def scenario() -> None:
        held = [await pool.take(), await pool.take()]
        waiting = asyncio.ensure_future(pool.take())
        await users.until_in_line(1)
        if is_called:
            await pool.give(held.pop())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (len(pool._lent), len(pool._line), pool._called) == (len(held), 0, {})
        for each in held:
            await pool.give(each)
        assert len(pool._idle) == 2

    asyncio.run(scenario())


def test_a_line_of_an_event_loop_that_has_ended_is_passed_over() -> None:
    users = Users(Colour.ASYNC)
    pool = users.pool

    async def hold() -> list[Made]:
        return [await pool.take(), await pool.take()]

    held = asyncio.run(hold())
    gone = asyncio.new_event_loop()
    waiting = pool.take()

    async def stand() -> None:
        waiting.send(None)  # as far as its wait, and no further: the loop ends without it

    gone.run_until_complete(stand())
    gone.close()
    assert len(pool._line) == 1
    for each in held:
        run(pool.give(each))
    assert (len(pool._line), len(pool._idle), pool._called) == (0, 2, {})
    with pytest.raises(RuntimeError):
        waiting.throw(RuntimeError)


def test_those_that_will_never_come_back_make_room() -> None:
    lost: set[Made] = set()
    users = Users(Colour.BLOCKING, is_lost=lost.__contains__)

    async def scenario() -> None:
        first, second = await users.pool.take(), await users.pool.take()
        lost.add(first)
        assert await users.pool.take() not in (first, second)
        assert len(users.pool._lent) == 2

    run(scenario())


# ---------------------------------------------------------------- SQLite, which blocks


class Crowd:
    """Many transactions of users at once, and how much was open for them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.opened = self.most_connections = self.most_threads = 0
        self._bystanders = set(our_threads())  # of tests before this one
        # Others are waited for: a connection that closes at the end locks the file for a moment.
        connect = bench.connect

        def counted() -> Any:
            made = connect()
            made.execute("PRAGMA busy_timeout = 5000")
            made.execute("PRAGMA synchronous = OFF")
            self.opened += 1
            return made

        bench.executor._connect = counted

    async def write(self, number: int) -> None:
        tx = await self.bench.executor.begin()
        try:
            self.most_connections = max(self.most_connections, self.bench.open_connections)
            self.most_threads = max(self.most_threads, len(set(our_threads()) - self._bystanders))
            await tx.execute("INSERT INTO t VALUES (?)", (number,))
            await tx.commit()
        finally:
            await tx.end()


def test_a_thousand_tasks_in_transactions_share_a_few_connections_and_threads(
    on_loop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 6 * PATIENCE)
    crowd = Crowd(on_loop)
    on_loop.run(lambda: asyncio.gather(*map(crowd.write, range(1000))))
    assert on_loop.numbers() == list(range(1000))
    assert crowd.opened == crowd.most_connections == crowd.most_threads == LARGEST


def test_a_thousand_threads_in_transactions_share_a_few_connections(
    blocking: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 6 * PATIENCE)
    crowd, start = Crowd(blocking), threading.Barrier(1000)

    def user(number: int) -> None:
        start.wait(6 * PATIENCE)
        run(crowd.write(number))

    before = threading.stack_size(256 * 1024)
    threads = [threading.Thread(target=user, args=(number,)) for number in range(1000)]
    for each in threads:
        each.start()
    threading.stack_size(before)
    for each in threads:
        each.join()
    run(blocking.executor.close())
    assert blocking.numbers() == list(range(1000))
    assert crowd.opened <= LARGEST
    assert (crowd.most_threads, blocking.open_connections) == (0, 0)


def test_users_who_wait_do_not_keep_the_store_from_its_work(on_loop: Bench) -> None:
    """One user has the database, as many as may wait for it, others for a connection. The store reads all the same,
    and writes as soon as the one is through: it does not stand behind the others in their line."""

    async def scenario() -> None:
        tx = await on_loop.executor.begin()
        pool = on_loop.executor._lent
        others = [asyncio.ensure_future(Crowd(on_loop).write(number)) for number in range(3 * LARGEST)]
        while len(pool._line) < 2 * LARGEST + 1:
            await asyncio.sleep(0)
        assert await on_loop.executor.fetch("SELECT count(*) FROM t", writes=False) == [(0,)]
        written = asyncio.ensure_future(on_loop.insert(1000))
        await tx.commit()
        await written
        await asyncio.gather(*others)

    on_loop.run(scenario)
    assert on_loop.numbers() == [*range(3 * LARGEST), 1000]


def test_a_user_who_waits_in_vain_hears_what_to_do(on_loop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", SOON)

    async def scenario() -> None:
        tx = await on_loop.executor.begin()
        others = [asyncio.ensure_future(on_loop.executor.begin()) for _ in range(LARGEST - 1)]
        while len(on_loop.executor._lent._lent) < LARGEST:
            await asyncio.sleep(0)
        with pytest.raises(StoreBusy, match=f"all {LARGEST} connections"):
            await on_loop.executor.begin()
        await tx.end()
        for each in asyncio.as_completed(others):
            await (await each).end()

    on_loop.run(scenario)
